"""`TaskContext.get()` in a worker: the Spark task whose rows user code gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from pyspark import TaskContext
from pyspark.resource import ResourceInformation

from anabranch.model.spark_task import SparkTask


def task_of(context: TaskContext) -> SparkTask:
    """What a Spark task says of itself."""
    amount = getattr(context, "_cpuAmount", None)
    resources = context.resources() or {}
    return SparkTask(
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        attempt_id=context.taskAttemptId(),
        cpus=context.cpus(),
        cpu_amount=None if amount is None else str(amount),
        resources={name: tuple(about.addresses) for name, about in resources.items()},
        properties=dict(context._localProperties or {}),
    )


def _context_of(task: SparkTask) -> TaskContext:
    context = object.__new__(TaskContext)  # its own constructor gives the same object to all
    context._stageId = task.stage
    context._partitionId = task.partition
    context._attemptNumber = task.attempt
    context._taskAttemptId = task.attempt_id
    context._cpus = task.cpus
    if task.cpu_amount is not None:
        context._cpuAmount = Decimal(task.cpu_amount)
    context._resources = {
        name: ResourceInformation(name, list(addresses))
        for name, addresses in task.resources.items()
    }
    context._localProperties = dict(task.properties)
    return context


class _Here(TaskContext):
    """PySpark has one context for a process; a worker has one for each operator's thread."""

    def __getattribute__(self, name: str) -> Any:
        context = getattr(_thread, "context", None)
        return getattr(_latest[0] if context is None else context, name)


_thread = threading.local()
_nothing: TaskContext = object.__new__(TaskContext)
_latest: list[TaskContext] = [_nothing]
"""For threads that user code starts."""
_here: TaskContext = object.__new__(_Here)
_lock = threading.Lock()
_running: list[TaskContext] = []


@contextmanager
def task_context(task: SparkTask) -> Iterator[None]:
    """What `TaskContext.get()` gives in this thread, and in those that user code starts."""
    context = _context_of(task)
    before, _thread.context = getattr(_thread, "context", None), context
    with _lock:
        _running.append(context)
        _latest[0] = context
        TaskContext._setTaskContext(_here)
    try:
        yield
    finally:
        _thread.context = before
        with _lock:
            _running.remove(context)
            _latest[0] = _running[-1] if _running else _nothing
            TaskContext._setTaskContext(_here if _running else None)
