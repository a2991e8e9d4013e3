"""`TaskContext.get()` in a worker."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest
from pyspark import BarrierTaskContext, TaskContext
from pyspark.errors import PySparkException

from anabranch.model.spark_task import SparkTask
from anabranch.processor.task_context import task_context, task_of

FIRST = SparkTask(3, 1, 2, 77, 4, "1.5", {"gpu": ("0", "1")}, {"streaming.sql.batchId": "9"})
SECOND = SparkTask(4, 0, 0, 78, 1)


def context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None
    return found


def test_it_is_the_lanes_own_task() -> None:
    assert TaskContext.get() is None
    with task_context(FIRST):
        here = context()
        assert (here.stageId(), here.partitionId(), here.attemptNumber()) == (3, 1, 2)
        assert (here.taskAttemptId(), here.cpus()) == (77, 4)
        assert here._cpuAmount == Decimal("1.5")
        assert here.resources()["gpu"].addresses == ["0", "1"]
        assert here.getLocalProperty("streaming.sql.batchId") == "9"
        assert here.getLocalProperty("other") is None
        assert task_of(here) == FIRST
        with pytest.raises(PySparkException, match="NOT_IN_BARRIER_STAGE"):
            BarrierTaskContext.get()
        with task_context(SECOND):
            assert context().stageId() == 4
        assert context().stageId() == 3
    assert TaskContext.get() is None


def test_each_operator_has_its_own() -> None:
    both = threading.Barrier(2)
    seen: dict[int, list[int]] = {}

    def run(task: SparkTask) -> None:
        with task_context(task):
            both.wait(20)
            seen[task.stage] = [context().stageId()]
            helper = threading.Thread(
                target=lambda: seen[task.stage].append(context().attemptNumber())
            )
            both.wait(20)
            helper.start()  # a thread of user code: the task of one that runs
            helper.join()
            both.wait(20)

    threads = [threading.Thread(target=run, args=(task,)) for task in (FIRST, SECOND)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {stage: first for stage, (first, _) in seen.items()} == {3: 3, 4: 4}
    assert {other for _, other in seen.values()} <= {0, 2}
