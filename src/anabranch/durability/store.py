"""A state location: its format, its holder, its operators and the manifests: its epochs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from anabranch.durability import garbage, names
from anabranch.durability.blobs import BlobStore, Location
from anabranch.durability.differences import differences, normalised
from anabranch.durability.documents import seal, unseal
from anabranch.durability.garbage import Collected
from anabranch.durability.locks import Hold
from anabranch.durability.manifest import FileRef, Manifest
from anabranch.durability.owner import Owner
from anabranch.errors import (
    CorruptState,
    EpochGap,
    FormatNotSupported,
    InvalidArgument,
    LocationInUse,
    ProtocolViolation,
    StateMismatch,
)
from anabranch.model.keyspace import KeySpace

LOCATION_FORMAT = 1
_CACHED_MANIFESTS_MAX = 32


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """What must stay the same for an operator's state to be usable."""

    name: str
    keyspace: KeySpace
    description: Mapping[str, Any]
    query_id: str | None = None
    first_epoch: int | None = None
    """The first batch that ever began; it must exist before a later one can."""

    def encode(self) -> bytes:
        """The bytes of operator.json."""
        return seal(
            {
                "name": self.name,
                "groups": self.keyspace.groups,
                "bins": self.keyspace.bins,
                "description": self.description,
                "query_id": self.query_id,
                "first_epoch": self.first_epoch,
            }
        )

    @classmethod
    def decode(cls, content: bytes, name: str) -> OperatorRecord:
        """Read operator.json."""
        body = unseal(content, name)
        keyspace = KeySpace(body["groups"], body["bins"])
        return cls(
            body["name"], keyspace, body["description"], body["query_id"], body["first_epoch"]
        )


class StateStore:
    """The coordinator's view of a location; workers use only its `blobs`. One thread at a time.

    `open` takes hold of the location until `close` or the end of the process.
    """

    def __init__(
        self,
        location: Location | BlobStore,
        *,
        owner: Owner | None = None,
        fsync: bool = True,
    ) -> None:
        if not isinstance(location, BlobStore):
            location = BlobStore(location, fsync=fsync)
        self.blobs = location
        self._owner = owner or Owner.this_process()
        self._hold: Hold | None = None
        self._records: dict[str, OperatorRecord] = {}
        self._manifests: dict[tuple[str, int], Manifest] = {}
        self._epochs: dict[str, list[int]] = {}

    def open(self) -> StateStore:
        """Create or open the location and take hold of it."""
        assert self._hold is None, "already open"
        # 1. Look before touching: nothing is ever written into somebody else's folder.
        is_new = not self._check_format()
        # 2. Only one live service on a local file system.
        hold = self.blobs.hold(names.LOCK_FILE, self._owner.encode())
        if hold is None:
            raise self._in_use(self._holder(), "is in use by another live service")
        try:
            # 3. The format, unless another process was faster.
            if is_new:
                content = seal({"anabranch_state_format": LOCATION_FORMAT})
                self.blobs.create_exclusive(names.FORMAT_FILE, content)
                self._check_format()
            # 4. From here on a former owner finds that it is one.
            self.blobs.write(names.FENCE_FILE, seal(self._owner.to_json()))
        except BaseException:
            hold.release()
            raise
        self._hold = hold
        return self

    def look(self) -> StateStore:
        """Check a location that is only read: nothing is held, so its service may be running."""
        if not self._check_format():
            raise StateMismatch(
                f"{self.blobs.location} holds no state. Give the location of a StateService."
            )
        return self

    def close(self) -> None:
        """Let go of the location (idempotent)."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def __enter__(self) -> StateStore:
        return self if self._hold is not None else self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def operators(self) -> list[str]:
        """Names of the operators that have state here."""
        found = []
        for folder in self.blobs.entries(names.OPERATORS_FOLDER):
            path = f"{folder}/operator.json"
            if self.blobs.exists(path):
                found.append(self._decode_record(path).name)
        return sorted(found)

    def open_operator(
        self, name: str, description: Mapping[str, Any], keyspace: KeySpace
    ) -> OperatorRecord:
        """Create an operator's folder, or check that its state fits what is asked."""
        asked = OperatorRecord(name, keyspace, normalised(description))
        path = names.operator_path(name)
        if not self.blobs.exists(path):
            if self.blobs.list(names.manifest_folder(name)):
                self.blobs.read(path)  # epochs without their operator: raises "is missing"
            self.check_fence()
            self.blobs.create_exclusive(path, asked.encode())
        stored = self._decode_record(path)
        self._check_record(stored, asked)
        self._records[name] = stored
        return stored

    def operator(self, name: str) -> OperatorRecord:
        """What is stored about an operator."""
        if name not in self._records:
            self._records[name] = self._decode_record(names.operator_path(name))
        return self._records[name]

    def bind_query(self, operator: str, query_id: str, first_epoch: int) -> None:
        """Bind an operator's state to a Spark query for good, or check that it is bound to it."""
        stored = self.operator(operator)
        bound = replace(stored, query_id=query_id, first_epoch=first_epoch)
        if stored.query_id in (None, query_id):
            if bound != stored:
                self.check_fence()
                self.blobs.write(names.operator_path(operator), bound.encode())
                self._records[operator] = bound
        else:
            raise StateMismatch(
                f"The state of operator {operator!r} in {self.blobs.location} belongs to query "
                f"{stored.query_id}, but query {query_id} asks for it. Start the query with the "
                "checkpoint location that it had, or use another state location."
            )

    def epochs(self, operator: str) -> list[int]:
        """Epochs that can be restored, ascending."""
        found = self.blobs.list(names.manifest_folder(operator))
        epochs = sorted(e for e in map(names.manifest_epoch_of, found) if e is not None)
        self._epochs[operator] = epochs
        return list(epochs)

    def latest_epoch(self, operator: str) -> int | None:
        """The last epoch that exists; None before the first."""
        epochs = self.epochs(operator)
        return epochs[-1] if epochs else None

    def manifest(self, operator: str, epoch: int) -> Manifest:
        """The manifest of an epoch; never another epoch's if it is damaged."""
        if (operator, epoch) in self._manifests:
            return self._manifests[operator, epoch]
        path = names.manifest_path(operator, epoch)
        name = self.blobs.full_name(path)
        manifest = Manifest.decode(self.blobs.read(path).to_pybytes(), name)
        if (manifest.operator, manifest.epoch) != (operator, epoch):
            raise CorruptState(
                f"Manifest {name} is of operator {manifest.operator!r}, epoch {manifest.epoch}: it "
                "was renamed or copied. Restore this file from a backup of the state location."
            )
        self._remember(manifest)
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """Make an epoch exist. Its last execution counts; an epoch before the last is refused."""
        known = self._known_epochs(manifest.operator)
        if known and manifest.epoch < known[-1]:
            raise EpochGap(
                f"Operator {manifest.operator!r} in {self.blobs.location} is at epoch {known[-1]}; "
                f"epoch {manifest.epoch} cannot be committed any more. Start the query with the "
                "checkpoint that belongs to this state, or use a new state location."
            )
        if known:
            self._check_not_collected(manifest)
        self.check_fence()
        stored = self.operator(manifest.operator)
        # The query too, should binding it have failed when its first batch began.
        bound = replace(stored, query_id=manifest.query_id or stored.query_id)
        if bound != stored:
            self.blobs.write(names.operator_path(bound.name), bound.encode())
            self._records[bound.name] = bound
        path = names.manifest_path(manifest.operator, manifest.epoch)
        self.blobs.write(path, manifest.encode())
        # A new owner may have come between check and write, where nothing locks them out.
        if not self.blobs.is_local:
            self.check_fence()
        if not known or known[-1] != manifest.epoch:
            known.append(manifest.epoch)
        self._remember(manifest)

    def accepts(self, operator: str, snapshot: FileRef) -> bool:
        """Whether a snapshot that no manifest lists yet may still be committed.

        Not if it is so old that garbage collection may have removed it.
        """
        known = self._known_epochs(operator)
        return not known or snapshot.epoch >= known[0]

    def collect_garbage(self, operator: str, retain: int = 10) -> Collected:
        """Delete old manifests and the files that only they needed."""
        if retain < 2:
            raise InvalidArgument(
                f"retain is {retain}. Keep at least 2 epochs: the last one may run again."
            )
        self.check_fence()
        epochs = self.epochs(operator)
        kept = epochs[-retain:]
        if not kept:
            return Collected()
        collected = garbage.collect(self.blobs, operator, epochs, kept, self.manifest)
        self._epochs[operator] = kept
        for key in [key for key in self._manifests if key[0] == operator and key[1] < kept[0]]:
            del self._manifests[key]
        return collected

    def verify(self, manifest: Manifest) -> None:
        """Check that every file of a manifest is there with its length (not its content)."""
        for ref, size in zip(
            manifest.files,
            self.blobs.map_ahead(lambda ref: self.blobs.size(ref.path), manifest.files),
            strict=True,
        ):
            if size != ref.bytes:
                raise CorruptState(
                    f"State file {self.blobs.full_name(ref.path)} has {size} bytes instead of "
                    f"{ref.bytes}. Restore it from a backup of the state location."
                )

    def check_fence(self) -> None:
        """Raise LocationInUse if another service has taken the location over."""
        assert self._hold is not None, "the store is not open"
        holder = self._read_fence()
        if holder.id != self._owner.id:
            raise self._in_use(holder, "was taken over by another service")

    def _check_format(self) -> bool:
        """Whether the location has a format; raises if it is not ours or too new."""
        if not self.blobs.exists(names.FORMAT_FILE):
            foreign = [path for path in self.blobs.entries() if path != names.LOCK_FILE]
            if foreign and not self.blobs.exists(names.FORMAT_FILE):
                raise StateMismatch(
                    f"{self.blobs.location} is not empty and is not a state location (it has "
                    f"{foreign[0]!r} but no {names.FORMAT_FILE}). Give an empty or new folder."
                )
            if not foreign:
                return False
        name = self.blobs.full_name(names.FORMAT_FILE)
        body = unseal(self.blobs.read(names.FORMAT_FILE).to_pybytes(), name)
        version = body.get("anabranch_state_format") if isinstance(body, dict) else None
        if not isinstance(version, int):
            raise CorruptState(f"{name} has no format version. Restore it from a backup.")
        if version > LOCATION_FORMAT:
            raise FormatNotSupported(
                f"{self.blobs.location} has state format {version}, this release reads up to "
                f"{LOCATION_FORMAT}. Use the release of Anabranch that wrote it, or a newer one."
            )
        return True

    def _check_record(self, stored: OperatorRecord, asked: OperatorRecord) -> None:
        found = differences(
            {"name": stored.name, **_keyspace(stored), "description": stored.description},
            {"name": asked.name, **_keyspace(asked), "description": asked.description},
        )
        if found:
            raise StateMismatch(
                f"The stored state of operator {asked.name!r} in {self.blobs.location} does not "
                f"fit the query: {'; '.join(found)}. Undo the change, or start with a new operator "
                "name or state location."
            )

    def _check_not_collected(self, manifest: Manifest) -> None:
        known = self._known_epochs(manifest.operator)
        oldest = known[0]
        suspects = [ref.path for ref in manifest.files if ref.epoch < oldest]
        if not suspects:
            return
        # The last two: when the last epoch runs again, its predecessor comes from the one before.
        listed: set[str] = set()
        for epoch in known[-2:]:
            try:
                listed.update(ref.path for ref in self.manifest(manifest.operator, epoch).files)
            except CorruptState:
                if epoch != manifest.epoch:  # that one is about to be replaced
                    raise
        lost = [path for path in suspects if path not in listed]
        if lost:
            raise ProtocolViolation(
                f"{lost[0]} is older than the oldest kept epoch {oldest} and no manifest lists it, "
                "so garbage collection may have removed it. Report this as a bug in Anabranch."
            )

    def _known_epochs(self, operator: str) -> list[int]:
        if operator not in self._epochs:
            self.epochs(operator)
        return self._epochs[operator]

    def _decode_record(self, path: str) -> OperatorRecord:
        content = self.blobs.read(path).to_pybytes()
        return OperatorRecord.decode(content, self.blobs.full_name(path))

    def _remember(self, manifest: Manifest) -> None:
        self._manifests.pop((manifest.operator, manifest.epoch), None)
        self._manifests[manifest.operator, manifest.epoch] = manifest
        while len(self._manifests) > _CACHED_MANIFESTS_MAX:
            del self._manifests[next(iter(self._manifests))]

    def _read_fence(self) -> Owner:
        content = self.blobs.read(names.FENCE_FILE).to_pybytes()
        return Owner.from_json(unseal(content, self.blobs.full_name(names.FENCE_FILE)))

    def _holder(self) -> Owner | None:
        try:
            return Owner.from_json(json.loads(self.blobs.read(names.LOCK_FILE).to_pybytes()))
        except (ValueError, KeyError, CorruptState):
            return None  # it has locked the file but not yet written its note

    def _in_use(self, holder: Owner | None, what: str) -> LocationInUse:
        who = f"{holder}" if holder else "a process that is just starting"
        return LocationInUse(
            f"State location {self.blobs.location} {what}: {who}. "
            "Stop that query first, or use another state location."
        )


def _keyspace(record: OperatorRecord) -> dict[str, int]:
    return {"key groups": record.keyspace.groups, "bins": record.keyspace.bins}
