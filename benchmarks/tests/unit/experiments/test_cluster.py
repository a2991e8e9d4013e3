"""Turns on a pretended cluster: moves between times without one, under one load."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.cli.main import main
from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import Batch, Timeline
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.experiments import cluster
from anabranch_bench.experiments.cluster import ClusterSettings, ClusterTurns
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import RunSet

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results"
SETTINGS = ClusterSettings(strategies=("live", "pause"), rate=100.0, seconds=0.05, repeat=2)


class PretendedCluster:
    """A driver whose query commits a batch whenever it is asked, and hosts that sent some bytes."""

    def __init__(self) -> None:
        self.load = OpenLoop(0, time.time(), SETTINGS.rate)
        self.asked: list[tuple[Any, ...]] = []
        self.batches: list[Batch] = []
        self.sent = 0
        self.outcome = "done"

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        """What the driver program would answer."""
        self.asked.append((name, *given, *(v for k, v in named.items() if k == "strategy")))
        if name == "move":
            self.sent += 1_000
            return 7
        if name == "report":
            return {
                "bytes": 500,
                "groups": 3,
                "outcome": self.outcome,
                "workers_after": ["w1", "w2"],
            }
        now = time.time()
        first = self.batches[-1].end_row if self.batches else 0
        end = self.load.end_of_batch(first, now)
        self.batches.append(Batch(first, end, now - 0.01, now))
        return Timeline(self.load, self.batches).to_json()


def test_moves_and_times_without_one_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = PretendedCluster()
    monkeypatch.setattr(cluster, "_bytes_sent", lambda network: pretended.sent)
    said: list[str] = []
    turns = ClusterTurns(
        cast(Any, None), cast(Any, pretended), SETTINGS, "1gbit", lambda text: said.append(text)
    )
    found = turns.take()
    assert [run.label for run in found] == [
        CONTROL,
        *("live", CONTROL, "pause", CONTROL, "live", CONTROL, "pause", CONTROL),
    ]
    assert len(said) == 4
    moves = [asked[2:] for asked in pretended.asked if asked[0] == "move"]
    assert moves == [(4, "live"), (2, "live"), (4, "pause"), (2, "live")] * 2
    runs = RunSet(found)
    for run in found:
        assert run.part == "1gbit"
        assert run.is_good
        if run.label == CONTROL:
            assert not run.moves
            continue
        assert run.report[cluster.BYTES_ACROSS] == 1_000
        assert run.move is not None
        assert SETTINGS.seconds <= run.move.start < run.move.end <= run.end
        assert [control.repeat for control in runs.controls_of(run)] == [run.repeat, run.repeat + 1]


def test_a_move_that_is_not_done_is_told_and_ends_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretended = PretendedCluster()
    pretended.outcome = "failed"
    monkeypatch.setattr(cluster, "_bytes_sent", lambda network: 0)
    turns = ClusterTurns(
        cast(Any, None), cast(Any, pretended), SETTINGS, "1gbit", lambda text: None
    )
    with pytest.raises(AnabranchError, match="way back to 2 workers is not done: failed"):
        turns.take()
    assert [run.error for run in turns.done] == ["", "The move is not done: failed"]


def test_the_published_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of docs/results.md, from their file."""
    assert main(["bench", "cluster", "--from", str(RESULTS / "cluster.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "host cut off Anabranch 9.72" in said
    assert "Spark 57.5" in said
    assert "results equal" in said
