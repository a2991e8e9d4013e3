"""`live` and its control in turns, on a query that is only pretended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmarks.tests.unit.runs.pretended import FailedMove, Move, Query

from anabranch.loadtest.loaded_query import Prepared
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.probes.machine import CoreShares
from anabranch_bench.results.cases import Case
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import Controls, RunResult
from anabranch_bench.runs import turns
from anabranch_bench.runs.key_count_runs import Timing
from anabranch_bench.runs.turns import Turns, expected_seconds

RATE = 10_000.0
PREPARED = Prepared(Path(), 1000, 0, 0)


class Ours:
    """In the place of KeyCountRuns; also of the side."""

    workers, target, service = 2, 3, None
    timing = Timing(0.0, 0.2)

    def __init__(self) -> None:
        self.query = Query()
        self.done: list[str] = []
        self.failing: set[int] = set()
        self.kills = False
        self.stolen: list[float] = []
        """In each turn; nothing in those after them."""

    def since(self) -> CoreShares:
        return CoreShares(0.5, self.stolen.pop(0) if self.stolen else 0.0)

    def say(self, text: str) -> None:
        pass

    @contextmanager
    def started(self, name: str, prepared: Prepared) -> Iterator[tuple[Any, Query]]:
        yield self, self.query

    def begin_move(self, query: Query, load: OpenLoop, case: Case, workers: int) -> Move:
        is_back = workers == self.workers
        self.done.append("back" if is_back else "out")
        if not is_back and len(self.done) in self.failing:
            query.is_active = not self.kills
            return FailedMove(query)
        return Move(query)


def new_run(label: str, number: int) -> RunResult:
    load = RunLoad.key_count(RATE, 2_000_000, 1024)
    return RunResult(load, Case.parse(label), number, "strategies", Controls.BESIDE)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Ours:
    for name in ("WARM_SECONDS", "WARM_AGAIN_SECONDS", "REST_SECONDS"):
        monkeypatch.setattr(turns, name, 0.01)
    monkeypatch.setattr(turns, "EXPECTED_BYTES_PER_SECOND", 1e11)
    monkeypatch.setattr(turns, "warm_up", lambda *_: None)
    ours = Ours()
    monkeypatch.setattr(turns, "CoreTimes", lambda: ours)
    return ours


def labels(runs: list[RunResult]) -> list[tuple[str, int]]:
    return [(run.label, run.repeat) for run in runs]


@pytest.mark.parametrize("is_rehearsed", [False, True])
def test_each_move_is_between_two_times_without(ours: Ours, is_rehearsed: bool) -> None:
    runs = list(Turns(ours, new_run, is_rehearsed).run(PREPARED, 2))  # type: ignore[arg-type]
    assert labels(runs) == [
        ("control", 0),
        ("live", 0),
        ("control", 1),
        ("live", 1),
        ("control", 2),
    ]
    assert ours.done == ["out", "back"] * (2 if is_rehearsed else 3)
    assert not any(run.error for run in runs)
    for first, second in pairwise(runs):
        assert first.timeline
        assert second.timeline
        last = first.timeline.batches[-1]
        assert last.end_row <= second.timeline.load.first_row, "no row counts twice"
    for run in runs[1::2]:
        assert run.move is not None
        assert run.timeline
        assert 0 < run.settle < run.move.start
        assert run.move.end < run.timeline.end
        assert len(RunSet(runs).controls_of(run)) == 2
        assert run.phase("before").throughput == pytest.approx(RATE, rel=0.5)
    assert len(RunSet(runs).ratios("live", "mean")) == 2
    # As long as the move before, with what every turn has around it.
    for live, control in zip(runs[1::2], runs[2::2], strict=True):
        assert live.move is not None
        assert control.timeline
        assert control.timeline.end >= live.move.seconds


def test_a_move_that_fails_is_a_result(ours: Ours) -> None:
    ours.failing = {1}
    runs = list(Turns(ours, new_run, True).run(PREPARED, 2))  # type: ignore[arg-type]
    assert [bool(run.error) for run in runs] == [False, True, False, False, False]
    assert runs[1].timeline
    assert runs[1].timeline.batches
    assert len(RunSet(runs).ratios("live", "mean")) == 1


def test_nothing_follows_if_the_query_fails_with_it(ours: Ours) -> None:
    ours.failing, ours.kills = {3}, True
    runs = list(Turns(ours, new_run, True).run(PREPARED, 3))  # type: ignore[arg-type]
    assert labels(runs)[-1] == ("live", 1)
    assert "query failed" in runs[-1].error
    assert not any(run.error for run in runs[:-1])


def test_a_move_without_the_cores_of_its_controls_is_taken_again(ours: Ours) -> None:
    ours.stolen = [0.05, 0.4, 0.04, 0.1, 0.3]
    runs = list(Turns(ours, new_run, True).run(PREPARED, 1))  # type: ignore[arg-type]
    assert labels(runs)[1::2] == [("live", 0), ("live", 1)]
    assert [len(RunSet(runs).controls_of(run)) for run in runs[1::2]] == [0, 1]
    assert len(RunSet(runs).ratios("live", "mean")) == 1
    assert "1 of 2 moves left out (cores 50% busy, 40.0% stolen)" in RunSet(runs).left_out("live")
    assert [run.repeat for run in RunSet(runs).judged("live")] == [1]


def test_a_machine_that_is_never_ours_is_given_up(ours: Ours) -> None:
    ours.stolen = [0.0, 0.3] * 10
    runs = list(Turns(ours, new_run, True).run(PREPARED, 2))  # type: ignore[arg-type]
    assert len(runs) == 2 * (2 + turns.RETAKES_MAX) + 1
    assert RunSet(runs).ratios("live", "mean") == []
    assert "4 of 4" in RunSet(runs).left_out("live")


def test_expected_time_of_a_move() -> None:
    run = new_run("live", 0)
    assert expected_seconds(run, Ours()) == pytest.approx(run.load.state_bytes / 3 / 10e6)  # type: ignore[arg-type]
    run.load = replace(run.load, keys=10)
    assert expected_seconds(run, Ours()) == turns.REST_SECONDS  # type: ignore[arg-type]
