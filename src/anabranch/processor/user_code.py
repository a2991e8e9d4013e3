"""User code in a worker, with what it may use of Spark: accumulators, broadcast variables, files.

Workers are not Spark's: what PySpark registers in its own processes is brought along here. Files
and broadcast variables are read where the driver has them, on the host that the workers share with
it: whoever moves workers to other hosts has to bring these two along, and finds both here.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext, SparkFiles
from pyspark import cloudpickle as _cloudpickle
from pyspark.core import broadcast

from anabranch.processor.contract import Transaction
from anabranch.processor.tally import WorkerAccumulator, counting
from anabranch.processor.task_context import task_context

cloudpickle: Any = _cloudpickle


@dataclass(frozen=True, slots=True)
class SentBroadcast:
    """A broadcast variable that user code refers to."""

    number: int
    path: str
    """The driver's file with the pickled value."""
    value: bytes | None = None
    """The pickled value itself, if Spark encrypts its files."""


@dataclass(frozen=True, slots=True)
class UserCode:
    """Something pickled, and what of Spark it needs."""

    pickled: bytes
    broadcasts: tuple[SentBroadcast, ...] = ()
    files: str | None = None
    """Spark's folder of added files."""

    def load(self) -> Any:
        """Make the process ready for it and unpickle it."""
        if self.files is not None:
            SparkFiles._is_running_on_worker = True
            SparkFiles._root_directory = self.files
        for sent in self.broadcasts:
            if sent.number not in broadcast._broadcastRegistry:
                broadcast._broadcastRegistry[sent.number] = _opened(sent)
        return loads(self.pickled)


def packed(thing: Any) -> bytes:
    """In the driver: something with user code in it, for `unpacked` in a worker."""
    context = SparkContext._active_spark_context
    pickled = bytes(cloudpickle.dumps(thing))
    if context is None:
        return pickle.dumps(UserCode(pickled))
    # Also those of what was pickled in this thread before, as a part of the thing.
    sent = tuple(_sent(variable) for variable in context._pickled_broadcast_vars)
    context._pickled_broadcast_vars.clear()
    return pickle.dumps(UserCode(pickled, sent, SparkFiles.getRootDirectory()))


def unpacked(data: bytes) -> Any:
    """In a worker: what was packed."""
    code: UserCode = pickle.loads(data)
    return code.load()


def _sent(variable: Any) -> SentBroadcast:
    value = None
    if variable._sc._encryption_enabled:
        value = pickle.dumps(variable.value, pickle.HIGHEST_PROTOCOL)
    return SentBroadcast(variable._jbroadcast.id(), variable._path, value)


def loads(pickled: bytes) -> Any:
    """Unpickle user code: its accumulators count for the transaction that runs it."""
    return _Unpickler(io.BytesIO(pickled)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) == ("pyspark.accumulators", "_deserialize_accumulator"):
            return WorkerAccumulator
        if (module_name, global_name) == ("pyspark.core.broadcast", "_from_id"):
            return _broadcast
        return super().find_class(module_name, global_name)


def _broadcast(number: int) -> Any:
    context = SparkContext._active_spark_context
    if context is not None:  # in the driver, which has the original
        for variable in context._pickled_broadcast_vars:
            if variable._jbroadcast.id() == number:
                return variable
    return broadcast._from_id(number)


def _opened(sent: SentBroadcast) -> Any:
    opened = broadcast.Broadcast(path=sent.path)  # read when it is used
    if sent.value is not None:
        opened._value = pickle.loads(sent.value)
    return opened


@contextmanager
def running(tx: Transaction) -> Iterator[None]:
    """User code of a transaction: its task is Spark's, and it counts there."""
    with counting(tx.tally), task_context(tx.task):
        yield
