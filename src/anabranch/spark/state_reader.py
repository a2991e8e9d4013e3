"""Reads committed state from a location: any retained epoch, beside a running service or alone."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.durability.blobs import BlobStore, Location
from anabranch.durability.group_restore import load_groups
from anabranch.durability.manifest import Manifest
from anabranch.durability.names import manifest_path
from anabranch.durability.store import StateStore
from anabranch.errors import CorruptState, EpochGap, InvalidArgument
from anabranch.spark.state_shapes import Shape, shapes_of
from anabranch.state.channel import ChannelledState
from anabranch.state.rows.layout import TIMERS

_PARTITION_BYTES = 16 << 20
_PARTITIONS_MIN = 4


@dataclass(frozen=True)
class StateSelection:
    """Which state to read; None: the only operator, its first variable, the last epoch."""

    operator: str | None = None
    variable: str | None = None
    epoch: int | None = None
    timers: bool = False
    flatten: bool = True
    ignore_waiting: bool = False
    """Read entries also where rows of some batches wait to be applied to them."""


class StateReader:
    """One state variable of one operator as of one epoch. Picklable: tasks read key groups."""

    def __init__(self, location: Location, selection: StateSelection) -> None:
        store = StateStore(location, fsync=False).look()
        self._blobs: BlobStore = store.blobs
        self._selection = selection
        self._manifest = _manifest(store, _operator(store, selection.operator), selection.epoch)

    def __getstate__(self) -> dict[str, Any]:
        # The shape has functions; it follows from the rest.
        return {name: value for name, value in self.__dict__.items() if name != "_shape"}

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self._manifest.operator

    @property
    def epoch(self) -> int:
        """The epoch whose state is read."""
        return self._manifest.epoch

    @property
    def stored_bytes(self) -> int:
        """Size of the files that the epoch needs."""
        return sum(ref.bytes for ref in self._manifest.files)

    @property
    def batch_time_ms(self) -> int | None:
        """Processing time of the epoch, if it was noted."""
        times = self._manifest.extra.get("times")
        return None if times is None else int(times["processing_time_ms"])

    @property
    def schema(self) -> StructType:
        """The columns of the DataFrame."""
        return self._shape.schema

    @property
    def variables(self) -> Mapping[str, Shape]:
        """Every state variable of the operator."""
        manifest = self._manifest  # not the operator's record: its schema may have grown since
        return shapes_of(manifest.description, manifest.keyspace, self._selection.flatten)

    def partitions(self, number: int | None = None) -> list[tuple[int, ...]]:
        """Key groups to be read together, in this many parts or as their size suggests."""
        groups = self._manifest.keyspace.groups
        if number is None:
            number = max(_PARTITIONS_MIN, -(-self.stored_bytes // _PARTITION_BYTES))
        number = min(number, groups)
        # Every so-manieth: lanes take key groups the same way, so a part needs few files.
        return [tuple(range(first, groups, number)) for first in range(number)]

    def read(self, groups: Collection[int]) -> Iterator[pa.Table]:
        """The entries of some key groups, a table for each that has any."""

        def create() -> ChannelledState:
            return ChannelledState(self._shape.create())

        with self._explained():
            restored = load_groups(self._blobs, self._manifest, groups, create)
        for group in sorted(restored):
            state = restored.pop(group).state
            if not self._selection.ignore_waiting:
                self._check_applied(state)
            table = self._shape.table(state.inner, group)
            if table.num_rows:
                yield table

    def _check_applied(self, state: ChannelledState) -> None:
        # A batch without rows may have fired timers.
        waiting = [s.epoch for s in state.waiting if s.rows.num_rows or TIMERS in self.variables]
        if waiting:
            raise EpochGap(
                f"The state of operator {self.operator!r} as of batch {self.epoch} has rows of "
                f"batch {waiting[0]} that are stored but not applied yet: the service checkpoints "
                "so. Only the operator itself can apply them. Read another batch, or give "
                "ignoreWaitingRows=true to read the state without them."
            )

    @functools.cached_property
    def _shape(self) -> Shape:
        variables, wanted = self.variables, self._selection.variable
        if self._selection.timers:
            if wanted is not None:
                raise InvalidArgument(
                    "Timers belong to no state variable. Give stateVarName or "
                    "readRegisteredTimers, not both."
                )
            wanted = TIMERS
        if wanted is None:
            named = [name for name in variables if name != TIMERS]
            if len(named) > 1:
                raise InvalidArgument(
                    f"Operator {self.operator!r} has several state variables: {_list(named)}. "
                    "Choose one with the option stateVarName."
                )
            wanted = named[0] if named else TIMERS
        if wanted not in variables:
            raise InvalidArgument(
                f"Operator {self.operator!r} has no "
                f"{'timers' if wanted == TIMERS else f'state variable {wanted!r}'}. It has: "
                f"{_list(name for name in variables if name != TIMERS)}."
            )
        return variables[wanted]

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except CorruptState:
            if self._blobs.exists(manifest_path(self.operator, self.epoch)):
                raise
            raise EpochGap(
                f"Batch {self.epoch} of operator {self.operator!r} was removed while it was being "
                "read: the service has moved ahead and keeps the last batches only. Read a later "
                "one, or without batchId."
            ) from None


def _operator(store: StateStore, name: str | None) -> str:
    known = store.operators()
    if name is None:
        if len(known) != 1:
            has = f"several operators: {_list(known)}" if known else "no operators yet"
            raise InvalidArgument(
                f"{store.blobs.location} has {has}. Choose one with the option operatorName."
            )
        name = known[0]
    if name not in known:
        raise InvalidArgument(
            f"{store.blobs.location} has no operator {name!r}. It has: {_list(known)}."
        )
    return name


def _manifest(store: StateStore, operator: str, epoch: int | None) -> Manifest:
    if epoch is None:
        with contextlib.suppress(CorruptState):  # perhaps removed since it was listed
            return _manifest_of(store, operator, None)
    return _manifest_of(store, operator, epoch)


def _manifest_of(store: StateStore, operator: str, epoch: int | None) -> Manifest:
    epochs = store.epochs(operator)
    if not epochs:
        raise EpochGap(
            f"Operator {operator!r} in {store.blobs.location} has no committed batch yet. Wait for "
            "its first one."
        )
    if epoch is None:
        epoch = epochs[-1]
    if epoch not in epochs:
        raise InvalidArgument(
            f"Batch {epoch} of operator {operator!r} is not in {store.blobs.location}. Batches "
            f"that can be read: {epochs[0]} to {epochs[-1]}."
        )
    return store.manifest(operator, epoch)


def _list(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
