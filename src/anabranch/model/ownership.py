"""Who owned which key group over time: whole pictures now and then, and changes between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.model.routing import Routing


def whole(routing: Routing) -> dict[str, Any]:
    """All owners: the workers, and for each key group the position of its owner among them."""
    workers = sorted(set(routing.owners), key=by_number)
    position = {worker: at for at, worker in enumerate(workers)}
    return {
        "version": routing.version,
        "workers": workers,
        "owners": [position[owner] for owner in routing.owners],
    }


def changes(before: Routing, after: Routing) -> dict[str, Any]:
    """What differs: new owners with the key groups that they got."""
    gained: dict[str, list[int]] = {}
    pairs = zip(before.owners, after.owners, strict=True)
    for group, (old, new) in enumerate(pairs):
        if old != new:
            gained.setdefault(new, []).append(group)
    return {"version": after.version, "gained": gained}


def by_number(worker: str) -> tuple[int, str]:
    """Sorts w2 before w10."""
    digits = worker.lstrip("w")
    return (int(digits) if digits.isdigit() else 0, worker)


@dataclass(frozen=True, slots=True)
class Owned:
    """Owners at some time, put together from what was noted."""

    version: int = 0
    owners: tuple[str, ...] = ()

    def after(self, noted: Mapping[str, Any]) -> Owned:
        """With one more note."""
        if "owners" in noted:
            workers: Sequence[str] = noted["workers"]
            return Owned(noted["version"], tuple(workers[at] for at in noted["owners"]))
        if not self.owners:
            return self  # changes of a picture that is no longer there
        owners = list(self.owners)
        for worker, groups in noted["gained"].items():
            for group in groups:
                owners[group] = worker
        return Owned(noted["version"], tuple(owners))

    @classmethod
    def of(cls, notes: Iterable[Mapping[str, Any]]) -> Owned:
        """Owners after all of these notes."""
        owned = cls()
        for noted in notes:
            owned = owned.after(noted)
        return owned
