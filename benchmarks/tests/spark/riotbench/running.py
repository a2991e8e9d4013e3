"""A workload on a service: batches of a fixed size, something that happens between, a verdict."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from anabranch import StateService
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.lanes import Finish
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.source import event_stream, one_query
from anabranch_bench.workloads.verify import Collected, verify

WAIT = 120
HELD_AFTER = 2
"""Batches before the things that happen."""
HELD_BACK = 2
"""Batches for after them: one to be disturbed, one to run on what that has left behind."""

Event = Callable[[StateService], None]


@dataclass
class Lots:
    """A pace: rows in lots, however long each takes.

    After two of them only if a file is there, and the last two only if another file is.
    """

    size: int
    rows: int
    gate: Path
    last_gate: Path

    @property
    def limit(self) -> int:
        """How far the stream may be read now."""
        if self.last_gate.exists():
            return self.rows
        waiting = self.rows - HELD_BACK * self.size
        return waiting if self.gate.exists() else HELD_AFTER * self.size

    def end_of_batch(self, start: int, now: float) -> int:
        return max(start, min(start + self.size, self.limit))


class Meeting:
    """A sink that tells when so many batches have come."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self._count = 0
        self.reached = threading.Event()

    def write(self, batch: DataFrame, batch_id: int) -> None:
        self._collected.write(batch, batch_id)
        self._count += 1
        if self._count == HELD_AFTER:
            self.reached.set()


def rescale(service: StateService) -> None:
    """Out, while batches go on."""
    move = service.rescale(3)
    assert move.wait(WAIT)
    assert move.report().outcome == "done"
    assert move.report().groups > 0
    assert len(service.status()["workers"]) == 3


def kill_inside_a_batch(service: StateService) -> None:
    """A worker dies when the first lane of the next batch has its answers.

    What it has applied for this lane is in no manifest yet, and the other lane may wait for it.
    """
    coordinator = service._coordinator
    finish, has_come = coordinator.calls._finish, threading.Event()

    def kill_first(request: Finish) -> Nothing:
        if not has_come.is_set():
            has_come.set()
            os.kill(coordinator.pids()["w1"], signal.SIGKILL)  # type: ignore[index]
        return finish(request)

    coordinator.calls._finish = kill_first


def rescale_and_kill(service: StateService) -> None:
    """One after the other."""
    rescale(service)
    kill_inside_a_batch(service)


def rows_done(query: StreamingQuery) -> int:
    """How far the stream has been read by batches that have ended."""
    offsets = [json.loads(s.endOffset) for p in query.recentProgress for s in p.sources]
    return max(int(o["row"]) for o in offsets if isinstance(o, dict) and "row" in o)


def nothing(_: StateService) -> None:
    """A quiet run."""


def check(
    spark: SparkSession,
    folder: Path,
    workload: Workload,
    rows: int,
    batches: int,
    event: Event,
    also: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run the first rows of a stream; the batches that came out.

    After two batches the source waits for `also`; then the event happens while batches go on. The
    last two begin after it: a worker dies in the first of them, if that is the event, and something
    has to run on what is left.
    """
    collected = Collected(list(workload.outputs))
    meeting = Meeting(collected)
    pace = Lots(rows // batches, rows, folder / "gate", folder / "last-gate")
    with StateService(spark, str(folder / "state"), workers=2, key_groups=16) as service:
        results = one_query(workload.build(service, event_stream(spark, workload.events, pace)))
        query = (
            results.writeStream.foreachBatch(meeting.write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        try:
            while not meeting.reached.wait(0.2):
                assert query.isActive, query.exception()
            also()
            pace.gate.touch()
            event(service)
            assert rows_done(query) <= rows - HELD_BACK * pace.size, "too few batches are left"
            pace.last_gate.touch()
            query.processAllAvailable()
            assert rows_done(query) == rows
        finally:
            query.stop()
        restarts = sum(w["restarts"] for w in service.status()["workers"].values())
        assert restarts == (event in (kill_inside_a_batch, rescale_and_kill))
    verdicts = verify(workload, rows, collected)
    assert all(v.is_right for v in verdicts), [str(v) for v in verdicts]
    assert all(v.expected_rows for v in verdicts), "nothing came out"
    return {name: collected.batches(name) for name in workload.outputs}
