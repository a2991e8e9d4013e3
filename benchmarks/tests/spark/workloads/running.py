"""Runs a workload through a quiet part, a rescale and a crash, and compares after each of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch import StateService
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch_bench.runs.loaded_run import workload_query
from anabranch_bench.runs.sides import ServiceSide
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.verify import Collected, verify

WAIT = 120


def nothing(_: float) -> None:
    """For parts in which nothing is disturbed."""


class Running:
    """A workload on a service of its own."""

    def __init__(self, spark: SparkSession, folder: Path, workload: Workload) -> None:
        self._workload = workload
        self.sink = Collected(list(workload.outputs))
        self.service = StateService(spark, str(folder / "state"), workers=2, key_groups=32)
        side = ServiceSide(self.service, workload_query(spark, workload))
        self.query = LoadedQuery(side.make, folder, 0, self.sink.write)

    def __enter__(self) -> Running:
        self.query.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()
        self.service.stop()

    def part(self, rows: int, batch_rows: int, disturb: Callable[[float], None] = nothing) -> None:
        """Run rows through, as fast as it goes, then check everything so far."""
        self.query.burst(rows, batch_rows, disturb)
        self.query.drain()
        verdicts = verify(self._workload, self.query.next_row, self.sink)
        assert all(v.is_right for v in verdicts), "; ".join(map(str, verdicts))

    def rescaled_part(
        self, rows: int, batch_rows: int, workers: int, strategy: str = "live"
    ) -> None:
        """Rescale while the rows run."""
        move = self.service.rescale(workers, strategy=strategy)
        self.part(rows, batch_rows)
        assert move.wait(WAIT)
        assert move.report().outcome == "done"
        assert move.report().groups > 0 or strategy == "stop-restart"
        assert len(self.service.status()["workers"]) == workers

    def crashed_part(self, rows: int, batch_rows: int) -> None:
        """Kill a worker while the rows run."""
        victims = [w["pid"] for w in self.service.status()["workers"].values()][:1]

        def kill(done: float) -> None:
            if victims and done > 0:
                os.kill(victims.pop(), signal.SIGKILL)

        self.part(rows, batch_rows, kill)
        assert not victims, "nothing was killed"
