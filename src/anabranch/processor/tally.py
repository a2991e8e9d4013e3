"""Spark's accumulators in a worker: what user code adds goes with the outputs of a key group.

The Spark task of the lane adds it to its own accumulators, and Spark does the rest. So it counts as
often as Spark counts the task, and what a transaction that was undone has added is gone with it.
"""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark import cloudpickle as _cloudpickle
from pyspark.accumulators import Accumulator, _deserialize_accumulator

cloudpickle: Any = _cloudpickle

_AT_ONCE = (int, float, complex)
"""Values that no addition changes in place."""


@dataclass(slots=True)
class _Count:
    """What was added to one accumulator since the last key group."""

    param: Any
    zero: Any
    value: Any = None
    is_touched: bool = False


@dataclass(slots=True)
class Tally:
    """What a transaction has added to accumulators, by key group."""

    counts: dict[int, _Count] = field(default_factory=dict)
    """By the number of the accumulator."""
    settled: dict[int, list[bytes]] = field(default_factory=dict)
    """Pickled (number, value) pairs by key group."""

    def add(self, accumulator: WorkerAccumulator, term: Any) -> None:
        """User code has added something."""
        count = self.counts.get(accumulator.aid)
        if count is None:
            count = _Count(accumulator.accum_param, accumulator._value)
            self.counts[accumulator.aid] = count
        if not count.is_touched:
            count.value = copy.deepcopy(count.zero)  # some parameters give the same zero to all
            count.is_touched = True
        count.value = count.param.addInPlace(count.value, term)

    def settle(self, group: int) -> None:
        """All since the last call belongs to a key group."""
        touched = {aid: count for aid, count in self.counts.items() if count.is_touched}
        if touched:
            pairs = [(aid, count.value) for aid, count in touched.items()]
            self.settled.setdefault(group, []).append(_pickled(pairs))
            for count in touched.values():
                count.value, count.is_touched = None, False

    def take(self, other: Tally) -> None:
        """What was added before the transaction began, by `init`."""
        for aid, count in other.counts.items():
            self.counts[aid] = count
        other.counts = {}

    def message(self, groups: Collection[int]) -> bytes:
        """What was added for some key groups, to be read with `unpacked`."""
        parts = [part for group in groups for part in self.settled.get(group, ())]
        if not parts:
            return b""
        kinds = {aid: (count.zero, count.param) for aid, count in self.counts.items()}
        return pickle.dumps((cloudpickle.dumps(kinds), parts))


def add_to_accumulators(messages: bytes) -> None:
    """In the Spark task: all that some messages, one after the other, say was added."""
    stream = io.BytesIO(messages)
    while stream.tell() < len(messages):
        kinds, parts = pickle.load(stream)
        known = cloudpickle.loads(kinds)
        for part in parts:
            for aid, value in pickle.loads(part):
                # Spark's own entry for accumulators that arrive in a task.
                _deserialize_accumulator(aid, *known[aid]).add(value)


def _pickled(pairs: list[tuple[int, Any]]) -> bytes:
    if all(type(value) in _AT_ONCE for _, value in pairs):
        return pickle.dumps(pairs)
    return bytes(cloudpickle.dumps(pairs))


class WorkerAccumulator(Accumulator[Any]):
    """An accumulator where user code runs; what is added goes to the tally of the transaction."""

    def __init__(self, aid: int, zero: Any, param: Any) -> None:
        # Not Spark's own: it would take the place of the driver's accumulator, where that is.
        self.aid = aid
        self.accum_param = param
        self._value = zero
        self._deserialized = True

    def add(self, term: Any) -> None:
        """Also what `+=` does."""
        _current().add(self, term)


_here = threading.local()
"""One thread for each operator runs user code."""

_latest: list[Tally] = [Tally()]
"""For threads that user code starts."""


def _current() -> Tally:
    tally: Tally | None = getattr(_here, "tally", None)
    return _latest[0] if tally is None else tally


@contextmanager
def counting(tally: Tally) -> Iterator[Tally]:
    """What user code adds in this thread goes here, and what threads that it starts add."""
    before, _here.tally = getattr(_here, "tally", None), tally
    _latest[0] = tally
    try:
        yield tally
    finally:
        _here.tally = before
