"""Savepoints: named copies of all operators' state as of one epoch, each a location of its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.copies import Folder, copy_files
from anabranch.durability.documents import seal, unseal
from anabranch.durability.manifest import Manifest
from anabranch.durability.operator_file import OperatorFile
from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.durability.store import LOCATION_FORMAT, StateStore
from anabranch.errors import CorruptState, FormatNotSupported, InvalidArgument, StateMismatch
from anabranch.model.keyspace import KeySpace

SAVEPOINT_FORMAT = 1


@dataclass(frozen=True)
class Savepoint:
    """A savepoint that exists, wherever it is."""

    name: str
    path: str
    """Folder or URI: give it to `StateService(..., restore=...)`."""
    id: str
    """Stays the same in copies of the savepoint."""
    created_at: int
    """Milliseconds since 1970."""
    key_groups: int
    bins: int
    epochs: Mapping[str, int]
    """The batch that each operator's state is as of: the same for all operators of a query."""
    bytes: int
    queries: Mapping[str, Mapping[str, Any]]
    """By Spark's query id: the operators and the batch.

    If Spark's checkpoint could be read, also the offsets of the sources at its end ("offsets"), and
    whether a checkpoint that continues there is part of the savepoint ("has_checkpoint")."""
    folder: Folder = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: str | Folder) -> Savepoint:
        """The savepoint at a path; raises if there is none."""
        folder = path if isinstance(path, Folder) else Folder(BlobStore(path))
        if not folder.exists(names.SAVEPOINT_FILE):
            raise InvalidArgument(
                f"There is no savepoint at {folder.name}: it has no {names.SAVEPOINT_FILE}. Give "
                "the path that `anabranch savepoint list LOCATION` shows."
            )
        name = folder.full_name(names.SAVEPOINT_FILE)
        body = unseal(folder.read(names.SAVEPOINT_FILE), name)
        if body["format"] > SAVEPOINT_FORMAT:
            raise FormatNotSupported(
                f"{name} has format {body['format']}, this release reads up to "
                f"{SAVEPOINT_FORMAT}. Use a newer release of Anabranch."
            )
        keys = ("name", "id", "created_at", "key_groups", "bins", "epochs", "bytes", "queries")
        return cls(path=folder.name, folder=folder, **{key: body[key] for key in keys})

    @property
    def keyspace(self) -> KeySpace:
        """How keys are divided."""
        return KeySpace(self.key_groups, self.bins)

    def record(self, operator: str) -> OperatorFile:
        """What must stay the same of an operator."""
        path = names.operator_path(operator)
        return OperatorFile.decode(self.folder.read(path), self.folder.full_name(path))

    def manifest(self, operator: str) -> Manifest:
        """Which files make up an operator's state."""
        path = names.manifest_path(operator, self.epochs[operator])
        return Manifest.decode(self.folder.read(path), self.folder.full_name(path))

    def verify(self) -> None:
        """Raise if a file is missing or has another length; contents are checked when read."""
        for operator in self.epochs:
            sizes: dict[str, int] = {}
            for ref in self.manifest(operator).files:
                if ref.path not in sizes:
                    sizes[ref.path] = self.folder.blobs.size(self.folder.prefix + ref.path)
                size = sizes[ref.path]
                if not ref.fits(size):
                    raise CorruptState(
                        f"State file {self.folder.full_name(ref.path)} has {size} bytes instead "
                        f"of {ref.bytes}: the savepoint was not copied whole. Copy it again."
                    )

    def extract_checkpoint(
        self, target: str, query_id: str | None = None, *, shared: bool = False
    ) -> None:
        """Write a Spark checkpoint: with it, a restored query continues after the savepoint.

        `query_id` is needed if the savepoint has operators of several queries.
        """
        have = [query for query, what in self.queries.items() if what["has_checkpoint"]]
        if query_id is None and len(have) == 1:
            query_id = have[0]
        if query_id not in have:
            raise self._which(query_id, have)
        made = Folder(BlobStore(target, shared=shared))
        if made.blobs.entries():
            raise InvalidArgument(f"{made.name} is not empty. Give a new folder.")
        prefix = names.saved_checkpoint_folder(query_id) + "/"
        saved = [path for path in self.folder.files() if path.startswith(prefix)]
        for path in sorted(saved, key=lambda path: path.endswith("/metadata")):  # it comes last
            made.write(path[len(prefix) :], self.folder.read(path))

    def _which(self, query_id: str | None, have: Sequence[str]) -> InvalidArgument:
        if not have:
            return InvalidArgument(
                f"Savepoint {self.path} has no checkpoint: Spark's was not there or not given when "
                "it was made. Start the query with a new checkpoint."
            )
        asked = f"none of query {query_id}" if query_id else "one for each of several queries"
        listed = "; ".join(f"{q} ({', '.join(self.queries[q]['operators'])})" for q in have)
        return InvalidArgument(
            f"Savepoint {self.path} has checkpoints, but {asked}. Choose one with --query ID, in a "
            f"program with query_id=. Queries with their operators: {listed}."
        )

    def copy(self, target: str, *, shared: bool = False) -> Savepoint:
        """The same savepoint at another place or in another store."""
        made = Folder(self.folder.blobs.beside(target, shared=shared))
        if made.exists(names.SAVEPOINT_FILE):
            raise InvalidArgument(f"There is a savepoint at {made.name} already. Delete it first.")
        if made.blobs.entries():
            raise InvalidArgument(
                f"{made.name} is not empty. Give a new folder; if it holds a copy that was "
                "interrupted, delete that first."
            )
        self.verify()
        files = [path for path in self.folder.files() if path != names.SAVEPOINT_FILE]
        copy_files(self.folder, made, [(path, path) for path in files])
        made.write(names.SAVEPOINT_FILE, self.folder.read(names.SAVEPOINT_FILE))
        return Savepoint.open(made)


def list_savepoints(blobs: BlobStore) -> list[Savepoint]:
    """Those of a location, the oldest first."""
    folders = [Folder(blobs, f"{path}/") for path in blobs.entries(names.SAVEPOINTS_FOLDER)]
    there = [Savepoint.open(f) for f in folders if f.exists(names.SAVEPOINT_FILE)]
    return sorted(there, key=lambda savepoint: savepoint.created_at)


def delete_savepoint(blobs: BlobStore, name: str) -> None:
    """Remove a savepoint of a location; running queries and restored services do not notice."""
    folder = Folder(blobs, names.savepoint_folder(name) + "/")
    if not folder.files():
        known = ", ".join(repr(s.name) for s in list_savepoints(blobs)) or "none"
        raise InvalidArgument(f"There is no savepoint {name!r} in {blobs.location}, only: {known}.")
    # First it does not exist any more, then its files go.
    blobs.delete(folder.prefix + names.SAVEPOINT_FILE)
    folder.clear()


def create_savepoint(
    store: StateStore,
    lock: AbstractContextManager[Any],
    name: str,
    checkpoints: Sequence[SparkCheckpoint] = (),
    on_step: Callable[[str], None] = lambda step: None,
    without: Collection[str] = (),
) -> Savepoint:
    """Save all operators, each query's as of the last batch that all of them and Spark have.

    `without` names operators that are not part of their queries any more.

    `lock` guards the store; it is not held while files are copied, so queries continue.
    """
    folder = Folder(store.blobs, names.savepoint_folder(name) + "/")
    with lock:
        if folder.exists(names.SAVEPOINT_FILE):
            raise InvalidArgument(
                f"There is a savepoint {name!r} in {store.blobs.location} already. Choose another "
                "name, or delete it first."
            )
        store.check_fence()
        # 1. One epoch for each query, which stays until we are done.
        queries = _by_query(store, {c.query_id: c for c in checkpoints}, without)
        epochs = {op: query.epoch for query in queries for op in query.operators}
        store.pins.update(epochs.items())
    try:
        folder.clear()  # what an attempt that was killed has left
        on_step("savepoint-begun")
        # 2. The files; 3. Spark's checkpoints; 4. the savepoint exists.
        manifests = _save_operators(store, lock, folder, epochs, on_step)
        body = {
            "format": SAVEPOINT_FORMAT,
            "name": name,
            "id": uuid.uuid4().hex,
            "created_at": int(time.time() * 1000),
            "key_groups": manifests[0].keyspace.groups,
            "bins": manifests[0].keyspace.bins,
            "epochs": epochs,
            "bytes": sum(ref.bytes for manifest in manifests for ref in manifest.files),
            "queries": {query.id: query.save(folder) for query in queries},
        }
        on_step("savepoint-before")
        with lock:
            store.check_fence()
            folder.write(names.SAVEPOINT_FILE, seal(body))
        on_step("savepoint-after")
    finally:
        with lock:
            store.pins.subtract(epochs.items())
    return Savepoint.open(folder)


def _save_operators(
    store: StateStore,
    lock: AbstractContextManager[Any],
    folder: Folder,
    epochs: Mapping[str, int],
    on_step: Callable[[str], None],
) -> list[Manifest]:
    folder.write(names.FORMAT_FILE, seal({"anabranch_state_format": LOCATION_FORMAT}))
    manifests = []
    for operator, epoch in epochs.items():
        with lock:
            manifest, record = store.manifest(operator, epoch), store.operator(operator)
        store.verify(manifest)
        paths = dict.fromkeys(ref.path for ref in manifest.files)
        copy_files(Folder(store.blobs), folder, [(path, path) for path in paths])
        # As it was then: the program of that time can use it.
        record = replace(record, description=manifest.description, restored_epoch=None)
        folder.write(names.operator_path(operator), record.encode())
        folder.write(names.manifest_path(operator, epoch), manifest.whole().encode())
        manifests.append(manifest)
        on_step("savepoint-operator")
    return manifests


@dataclass(frozen=True)
class _Query:
    """One Spark query of a savepoint."""

    id: str
    operators: tuple[str, ...]
    epoch: int
    checkpoint: SparkCheckpoint | None

    def save(self, folder: Folder) -> dict[str, Any]:
        offsets: list[Any] | None = None
        files: Mapping[str, Any] = {}
        if self.checkpoint is not None:
            offsets = self.checkpoint.offsets(self.epoch)
            files = self.checkpoint.continuing(self.epoch)
            for path, content in files.items():
                folder.write(f"{names.saved_checkpoint_folder(self.id)}/{path}", content)
        return {
            "operators": list(self.operators),
            "epoch": self.epoch,
            "offsets": offsets,
            "has_checkpoint": bool(files),
        }


def retired(store: StateStore, defined: Collection[str]) -> list[str]:
    """Operators of running queries, but without them: the program has changed."""
    query_of = {operator: store.operator(operator).query_id for operator in store.operators()}
    running = {query_of[operator] for operator in defined if operator in query_of} - {None}
    return [op for op, query in query_of.items() if op not in defined and query in running]


def _by_query(
    store: StateStore, checkpoints: Mapping[str, SparkCheckpoint], without: Collection[str]
) -> list[_Query]:
    operators: dict[str, list[str]] = {}
    for operator in store.operators():
        if operator in without:
            continue
        query_id = store.operator(operator).query_id
        if query_id is not None:  # else no batch of it ever began
            operators.setdefault(query_id, []).append(operator)
    if not operators:
        raise InvalidArgument(
            f"There is nothing to save in {store.blobs.location}: no query has run a batch yet."
        )
    if strange := sorted(checkpoints.keys() - operators.keys()):
        raise StateMismatch(
            f"The checkpoint of query {strange[0]} was given, but the state in "
            f"{store.blobs.location} belongs to: {', '.join(operators)}. Give their checkpoints."
        )
    found = []
    for query_id, some in operators.items():
        checkpoint = checkpoints.get(query_id)
        found.append(_Query(query_id, tuple(some), _epoch(store, some, checkpoint), checkpoint))
    return found


def _epoch(store: StateStore, operators: list[str], checkpoint: SparkCheckpoint | None) -> int:
    """The last epoch of a query that exists for all its operators, and for Spark if it is asked."""
    common = set.intersection(*(set(store.epochs(operator)) for operator in operators))
    if checkpoint is not None:
        last = checkpoint.last_commit()
        common = {epoch for epoch in common if last is not None and epoch <= last}
    if not common:
        last_of = {operator: max(store.epochs(operator), default=None) for operator in operators}
        raise InvalidArgument(
            "There is no batch that Spark has committed and that all operators of the query have; "
            f"their last ones are {last_of}. If the query's first batch is not over yet, try again "
            "after it; an operator that is not part of the query any more is left out with "
            "--without NAME."
        )
    return max(common)
