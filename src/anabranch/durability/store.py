"""A state location: its format, its holder, its operators and the manifests: its epochs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from anabranch.durability import garbage, names
from anabranch.durability.blobs import BlobStore, Location
from anabranch.durability.differences import normalised
from anabranch.durability.documents import seal, unseal
from anabranch.durability.garbage import CollectedGarbage, Expired
from anabranch.durability.list_writer import ListWriter
from anabranch.durability.locks import Hold
from anabranch.durability.manifest import FileRef, Manifest
from anabranch.durability.manifest_reader import ManifestReader
from anabranch.durability.operator_file import Compare, OperatorFile
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
from anabranch.state.access import access_warning

__all__ = ["LOCATION_FORMAT", "RESTORED_FORMAT", "OperatorFile", "StateStore"]

LOCATION_FORMAT = 1
RESTORED_FORMAT = 2
"""Of locations that a savepoint was restored into: earlier releases would start from nothing."""

_CACHED_MANIFESTS_MAX = 32


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
        self.owner = owner or Owner.this_process()
        self._hold: Hold | None = None
        self._records: dict[str, OperatorFile] = {}
        self._manifests: dict[tuple[str, int], Manifest] = {}
        self._reader = ManifestReader(location)
        self._lists = ListWriter(location, self.owner.id)
        self._epochs: dict[str, list[int]] = {}
        self.pins: Counter[tuple[str, int]] = Counter()
        """Operators and epochs that are being read: garbage collection leaves them alone."""

    def open(self) -> StateStore:
        """Create or open the location and take hold of it."""
        assert self._hold is None, "already open"
        # 1. Look before touching: nothing is ever written into somebody else's folder.
        is_new = not self._check_format()
        # 2. Only one live service on a local file system.
        hold = self.blobs.hold(names.LOCK_FILE, self.owner.encode())
        if hold is None:
            raise self._in_use(self._holder(), "is in use by another live service")
        try:
            # 3. The format, unless another process was faster.
            if is_new:
                content = seal({"anabranch_state_format": LOCATION_FORMAT})
                self.blobs.create_exclusive(names.FORMAT_FILE, content)
                self._check_format()
            # 4. From here on a former owner finds that it is one.
            self.blobs.write(names.FENCE_FILE, seal(self.owner.to_json()))
        except BaseException:
            hold.release()
            raise
        self._hold = hold
        return self

    def access_warning(self, shared: bool) -> str | None:
        """What to say of a folder that was there before; nothing of object stores."""
        if not self.blobs.is_local:
            return None
        return access_warning(
            self.blobs.location, self.blobs.full_name(names.OPERATORS_FOLDER), shared
        )

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
        self,
        name: str,
        description: Mapping[str, Any],
        keyspace: KeySpace,
        compare: Compare | None = None,
    ) -> OperatorFile:
        """Create an operator's folder, or check that its state fits what is asked.

        `compare` says what of a stored description cannot be read; None: whatever differs.
        """
        asked = OperatorFile(name, keyspace, normalised(description))
        path = names.operator_path(name)
        if not self.blobs.exists(path):
            if self.blobs.list(names.manifest_folder(name)):
                self.blobs.read(path)  # epochs without their operator: raises "is missing"
            self.check_fence()
            self.blobs.create_exclusive(path, asked.encode())
        stored = self._decode_record(path)
        stored.check(asked, self.blobs.location, compare)
        self._records[name] = stored
        return stored

    def operator(self, name: str) -> OperatorFile:
        """What is stored about an operator."""
        if name not in self._records:
            self._records[name] = self._decode_record(names.operator_path(name))
        return self._records[name]

    def bind_query(
        self, operator: str, query_id: str, first_epoch: int, place: int | None = None
    ) -> None:
        """Bind an operator's state to a Spark query for good, or check that it is bound to it."""
        stored = self.operator(operator)
        if stored.query_id in (None, query_id):
            bound = replace(stored, query_id=query_id, first_epoch=first_epoch)
            self._write_record(bound if place is None else replace(bound, place=place))
        else:
            raise StateMismatch(
                f"The state of operator {operator!r} in {self.blobs.location} belongs to query "
                f"{stored.query_id}, but query {query_id} asks for it. Start the query with the "
                "checkpoint location that it had, or use another state location."
            )

    def release(self, operator: str) -> None:
        """Let another query have an operator of which no batch was ever committed."""
        assert not self.epochs(operator), "its query has state"
        stored = self.operator(operator)
        self._write_record(replace(stored, query_id=None, first_epoch=None, place=None))

    def forget(self, operator: str) -> None:
        """Its files are about to be removed."""
        self._records.pop(operator, None)
        self._epochs.pop(operator, None)
        for key in [key for key in self._manifests if key[0] == operator]:
            del self._manifests[key]

    def _write_record(self, record: OperatorFile) -> None:
        if record != self.operator(record.name):
            self.check_fence()
            self.blobs.write(names.operator_path(record.name), record.encode())
            self._records[record.name] = record

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
        manifest = self._reader.read(path)
        if (manifest.operator, manifest.epoch) != (operator, epoch):
            raise CorruptState(
                f"Manifest {self.blobs.full_name(path)} is of operator {manifest.operator!r}, "
                f"epoch {manifest.epoch}: it was renamed or copied. Restore this file from a "
                "backup of the state location."
            )
        self._remember(manifest)
        return manifest

    def last(self, operator: str) -> Manifest | None:
        """The newest manifest; None if there is none, or a damaged one: its epoch can run again."""
        known = self._known_epochs(operator)
        try:
            return self.manifest(operator, known[-1]) if known else None
        except CorruptState:
            return None

    def before(self, operator: str, base: int | None) -> Manifest | None:
        """The manifest that an epoch builds on; None as base: what was there before the first."""
        if base is not None:
            return self.manifest(operator, base)
        if self.operator(operator).restored_epoch is None:
            return None
        return self._reader.read(names.origin_path(operator))

    def commit(
        self, manifest: Manifest, on_step: Callable[[str], None] = lambda step: None
    ) -> None:
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
        # Files of a new schema are never under the description of an old one.
        described = normalised(dict(manifest.description))
        # The query too, should binding it have failed when its first batch began.
        query_id = manifest.query_id or stored.query_id
        self._write_record(replace(stored, description=described, query_id=query_id))
        # Lists first: a manifest that is there has what it names.
        manifest = self._lists.settled(manifest)
        on_step("before-manifest")
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

    def collect_garbage(self, operator: str, retain: int = 10) -> CollectedGarbage:
        """Delete old manifests and the files that only they needed."""
        expired = self.expire(operator, retain)
        return CollectedGarbage(expired.manifests, expired.sweep())

    def expire(self, operator: str, retain: int) -> Expired:
        """Delete old manifests; the files that only they needed are left to `Expired.sweep`."""
        if retain < 2:
            raise InvalidArgument(
                f"retain is {retain}. Keep at least 2 epochs: the last one may run again."
            )
        self.check_fence()
        epochs = self.epochs(operator)
        if not epochs:
            return Expired(self.blobs, operator)
        pinned = [epoch for (name, epoch), count in self.pins.items() if name == operator and count]
        oldest = min([epochs[-retain:][0], *pinned])
        kept = [epoch for epoch in epochs if epoch >= oldest]
        expired = garbage.expire(self.blobs, operator, epochs, kept, self.manifest)
        self._epochs[operator] = kept
        for key in [key for key in self._manifests if key[0] == operator and key[1] < kept[0]]:
            del self._manifests[key]
        return expired

    def verify(self, manifest: Manifest) -> None:
        """Check that every file of a manifest is there with its length (not its content)."""
        paths = list(dict.fromkeys(ref.path for ref in manifest.files))
        sizes = dict(zip(paths, self.blobs.map_ahead(self.blobs.size, paths), strict=True))
        for ref in manifest.files:
            size = sizes[ref.path]
            if not ref.fits(size):
                raise CorruptState(
                    f"State file {self.blobs.full_name(ref.path)} has {size} bytes instead of "
                    f"{ref.bytes}. Restore it from a backup of the state location."
                )

    def check_fence(self) -> None:
        """Raise LocationInUse if another service has taken the location over."""
        assert self._hold is not None, "the store is not open"
        holder = self._read_fence()
        if holder.id != self.owner.id:
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
        if version > RESTORED_FORMAT:
            raise FormatNotSupported(
                f"{self.blobs.location} has state format {version}, this release reads up to "
                f"{RESTORED_FORMAT}. Use the release of Anabranch that wrote it, or a newer one."
            )
        return True

    def _check_not_collected(self, manifest: Manifest) -> None:
        known = self._known_epochs(manifest.operator)
        oldest = known[0]
        cached = [self._manifests.get((manifest.operator, epoch)) for epoch in known[-2:]]
        if not manifest.content.brings_older(oldest, [m.content for m in cached if m is not None]):
            return
        suspects = [ref.path for ref in manifest.files if ref.epoch < oldest]
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

    def _decode_record(self, path: str) -> OperatorFile:
        content = self.blobs.read(path).to_pybytes()
        return OperatorFile.decode(content, self.blobs.full_name(path))

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
