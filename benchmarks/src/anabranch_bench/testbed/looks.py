"""What a test asks of a driver that runs the workload, by `Driver.call("module:function")`."""

from __future__ import annotations

from typing import Any

from anabranch_bench.testbed.driver_program import Stage


def move_state(stage: Stage, number: int) -> dict[str, Any]:
    """How far a move is, and whether it is over."""
    handle = stage.handles[number]
    return {"is_over": handle.is_done, "progress": handle.progress}


def tasks_by_host(stage: Stage) -> dict[str, int]:
    """Tasks that have ended on each host's executors: of lanes, for an agent's task goes on."""
    status = stage.spark.sparkContext._jsc.sc().statusStore()
    executors = status.executorList(False)
    found: dict[str, int] = {}
    for index in range(executors.size()):
        told = executors.apply(index)
        host = str(told.hostPort()).rpartition(":")[0]
        found[host] = found.get(host, 0) + int(told.completedTasks())
    return found
