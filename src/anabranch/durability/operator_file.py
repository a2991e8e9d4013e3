"""operator.json: what must stay the same for an operator's state to be usable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.durability.differences import differences
from anabranch.durability.documents import seal, unseal
from anabranch.errors import StateMismatch
from anabranch.model.keyspace import KeySpace

Description = Mapping[str, Any]

Compare = Callable[[Description], list[str]]
"""What of a stored description an operator cannot read, in words; empty if it can read it all."""


@dataclass(frozen=True, slots=True)
class OperatorFile:
    """What a location knows of an operator, besides its epochs."""

    name: str
    keyspace: KeySpace
    description: Description
    query_id: str | None = None
    first_epoch: int | None = None
    """The first batch that ever began; it must exist before a later one can."""
    restored_epoch: int | None = None
    """Epoch of the savepoint that the operator's state before its first epoch comes from."""
    continues: bool = False
    """Whether the first epoch must be the one after the savepoint's: rows wait with their epoch."""
    place: int | None = None
    """Which one of its class it is in its query, from 0; None: the program gave it its name."""
    restored_query: str | None = None
    """The query that it belonged to when the savepoint was made."""

    def encode(self) -> bytes:
        """The bytes of operator.json."""
        body = {
            "name": self.name,
            "groups": self.keyspace.groups,
            "bins": self.keyspace.bins,
            "description": self.description,
            "query_id": self.query_id,
            "first_epoch": self.first_epoch,
        }
        if self.restored_epoch is not None:
            body["restored_epoch"] = self.restored_epoch
            body["continues"] = self.continues
        more = {"place": self.place, "restored_query": self.restored_query}
        body.update({name: value for name, value in more.items() if value is not None})
        return seal(body)

    @classmethod
    def decode(cls, content: bytes, name: str) -> OperatorFile:
        """Read operator.json."""
        body = unseal(content, name)
        return cls(
            body["name"],
            KeySpace(body["groups"], body["bins"]),
            body["description"],
            body["query_id"],
            body["first_epoch"],
            body.get("restored_epoch"),
            body.get("continues", False),
            body.get("place"),
            body.get("restored_query"),
        )

    def check(self, asked: OperatorFile, location: str, compare: Compare | None) -> None:
        """Raise if the query cannot go on with the stored state; nothing was touched."""
        found = differences(
            {"name": self.name, **_keyspace(self)}, {"name": asked.name, **_keyspace(asked)}
        )
        if self.description != asked.description:
            if compare is None:
                found += differences(
                    {"description": self.description}, {"description": asked.description}
                )
            else:
                found += compare(self.description)
        if found:
            raise StateMismatch(
                f"The stored state of operator {asked.name!r} in {location} does not "
                f"fit the query: {'; '.join(found)}. Undo the change, or start with a new operator "
                "name or state location. Nullable fields may be added at any time."
            )


def _keyspace(record: OperatorFile) -> dict[str, int]:
    return {"key groups": record.keyspace.groups, "bins": record.keyspace.bins}
