"""The operators of a location, whichever program defined them: found, listed, removed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.durability import names
from anabranch.durability.operator_file import OperatorFile
from anabranch.durability.store import StateStore
from anabranch.errors import CorruptState, InvalidArgument


@dataclass(frozen=True)
class StoredOperator:
    """State that a location holds under a name."""

    name: str
    query_id: str | None
    """The Spark query that it belongs to; None: no query has used it yet."""
    last_batch: int | None
    """The last batch that it is as of; None: no batch of it was ever committed."""
    bytes: int
    """Of the files of that batch."""


def namesakes(base: str, stored: Iterable[str]) -> list[str]:
    """Names made from one class name, by number: Counter, Counter-2, Counter-3."""
    pattern = re.compile(re.escape(base) + r"(?:-([1-9]\d*))?\Z")
    found = {name: match.group(1) for name in stored if (match := pattern.match(name))}
    return sorted(found, key=lambda name: int(found[name] or 1))


def records(store: StateStore) -> dict[str, OperatorFile]:
    """All of them, by name."""
    return {name: store.operator(name) for name in store.operators()}


def is_begun(store: StateStore, record: OperatorFile) -> bool:
    """Whether a batch of it was ever committed, or a savepoint brought its state."""
    return record.restored_epoch is not None or bool(store.epochs(record.name))


def listed(store: StateStore) -> list[StoredOperator]:
    """What the location holds."""
    found = []
    for name, record in records(store).items():
        epochs, size = store.epochs(name), 0
        if epochs:
            try:
                size = sum(ref.bytes for ref in store.manifest(name, epochs[-1]).files)
            except CorruptState:
                size = 0  # whoever reads it will hear of it
        last = epochs[-1] if epochs else record.restored_epoch
        found.append(StoredOperator(name, record.query_id, last, size))
    return found


def remove(store: StateStore, name: str) -> None:
    """Delete an operator's state for good; a process that ends midway leaves an error, not less."""
    if not store.blobs.list(names.operator_folder(name)):
        raise InvalidArgument(
            f"{store.blobs.location} holds no operator {name!r}, only: "
            f"{', '.join(map(repr, store.operators())) or 'none'}. Nothing was removed."
        )
    store.check_fence()
    # 1. The operator: what is left without it is an error. 2. Its epochs, the newest first.
    store.forget(name)
    store.blobs.delete(names.operator_path(name))
    store.blobs.delete_all(sorted(store.blobs.list(names.manifest_folder(name)), reverse=True))
    # 3. Files that nothing lists any more.
    store.blobs.delete_all(store.blobs.list(names.operator_folder(name)))
