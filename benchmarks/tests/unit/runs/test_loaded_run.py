"""A run on a query that is only pretended: what people are told, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from benchmarks.tests.unit.runs.pretended import Query

from anabranch.loadtest.latency import Batch, Timeline
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import RunResult
from anabranch_bench.runs.loaded_run import CATCHING_UP, LoadedRun, RunSettings
from anabranch_bench.runs.under_load import Moment

SETTINGS = RunSettings(1000.0, 0.05, look_seconds=0.01)


class SlowQuery(Query):
    """When the load ends, it has 700 rows left, then 30, then none."""

    next_row = 0

    def burst(self, rows: int, batch_rows: int, on_progress: Callable[[float], None]) -> list[Any]:
        on_progress(0.5)
        return [Batch(0, rows, 0.0, 1.0)]

    def drain(self, on_wait: Callable[[int], None] = lambda rows: None) -> None:
        for left in (700, 30, 0):
            on_wait(left)

    def timeline(self, load: OpenLoop) -> Timeline:
        return Timeline(load, self.batches)


def side() -> Any:
    """One whose query does not move."""

    class Side:
        service = None

    return Side()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_is_left_is_told_while_it_catches_up(is_stopped: bool) -> None:
    """At the end of the load, and also if somebody ends it before."""
    query: Any = SlowQuery()
    query.open(SETTINGS.rate)
    moments: list[Moment] = []
    case = SETTINGS.case
    result = RunResult(RunLoad("made up", SETTINGS.rate), case)
    LoadedRun(side(), query, SETTINGS, result, moments.append, lambda: is_stopped).run()
    assert [m.left for m in moments if m.phase == CATCHING_UP] == [700, 30, 0]
    assert [m.left for m in moments if m.phase != CATCHING_UP] == [None] * (len(moments) - 3)
    assert result.is_interrupted == is_stopped
