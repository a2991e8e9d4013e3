"""The autoscaler with real workers that wait for each key: their number is the capacity."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.counting import Waiting, WaitingEngine
from tests.integration.harness import QUERY
from tests.integration.streaming import MovingCluster, Stream

from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.coordinator.autoscaler import Autoscaler
from anabranch.coordinator.journal_notes import JournalNotes
from anabranch.model.journal_entry import EntryKind
from anabranch.model.query_reports import QueryReports

WAIT_SECONDS = 240
LITTLE, MUCH = 30, 400
"""Keys a second; a worker does 200 when it is busy all the time."""
QUICK = AutoscaleSettings("act", 1, 4, stabilization_interval=1.0, scale_down_interval=4.0)


SECONDS_MAX = 3.0
"""Of keys in a batch: on a machine with much to do, batches must not grow without end."""


class Silent:
    """A query that tells nothing of its batches: the coordinator's own clock counts."""

    def reports(self, operator: str, query_id: str) -> QueryReports:
        return QueryReports()


class RatedStream(Stream):
    """Keys come at a rate, however long a batch takes."""

    def __init__(self, cluster: MovingCluster, rate: float) -> None:
        super().__init__(cluster)
        self.rate = rate
        self._numbers = itertools.count()
        self._taken = time.monotonic()

    def _run_batch(self, epoch: int) -> None:
        now = time.monotonic()
        count = max(1, round(self.rate * min(SECONDS_MAX, now - self._taken)))
        self._taken = now
        keys = list(itertools.islice(self._numbers, count))
        found = self.cluster.run_batch(epoch, keys, 2)
        assert found == self.oracle.run_batch(keys)


class Noted:
    """Entries of the autoscaler."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def __call__(self, kind: EntryKind, **fields: Any) -> None:
        assert kind is EntryKind.AUTOSCALE
        self.told.append(fields["details"])


@contextmanager
def scaling(
    folder: Path, rate: float, settings: AutoscaleSettings = QUICK, workers: int = 1
) -> Iterator[tuple[MovingCluster, RatedStream, Autoscaler, Noted]]:
    """A cluster under a load, and its autoscaler."""
    noted = Noted()
    with MovingCluster(folder, workers, Waiting()) as cluster:
        book = cluster.coordinator.load_book(Silent(), None)
        stream = RatedStream(cluster, rate)
        with stream:
            scaler = Autoscaler(cluster.coordinator.moves, book, JournalNotes(noted), settings)
            try:
                yield cluster, stream, scaler, noted
            finally:
                scaler.stop()


def rules(scaler: Autoscaler) -> list[str]:
    return [each["rule"] for each in scaler.describe(500)["decisions"]]


def wait(stream: RatedStream, what: Callable[[], bool]) -> None:
    stream.until(what, WAIT_SECONDS)


@pytest.mark.soak
def test_it_follows_the_load_up_and_down(tmp_path: Path) -> None:
    with scaling(tmp_path / "s", MUCH) as (cluster, stream, _, noted):
        wait(stream, lambda: len(cluster.workers()) >= 3)
        stream.rate = LITTLE
        wait(stream, lambda: len(cluster.workers()) == 1)
        told = [each["rule"] for each in noted.told]
        assert {"up", "down"} <= set(told)
        moves = cluster.coordinator.moves.recent()
        assert moves
        assert {move.cause for move in moves} == {"autoscaler"}


def test_recommending_moves_nothing(tmp_path: Path) -> None:
    settings = QUICK.changed({"mode": "recommend"})
    with scaling(tmp_path / "s", MUCH, settings) as (cluster, stream, scaler, noted):
        wait(stream, lambda: "up" in rules(scaler))
        last = next(each for each in noted.told if each["rule"] == "up")
        assert last["wanted"] >= 2
        assert last["inputs"]["arrival_rows_per_second"] > 100
        assert last["inputs"]["worker_rows_per_second"] < 1 / WaitingEngine.row_seconds * 1.2
        assert len(cluster.workers()) == 1
        assert not cluster.coordinator.moves.recent()
        scaler.change({"mode": "off"})
        assert scaler.describe(1)["settings"]["mode"] == "off"


@pytest.mark.soak
def test_a_step_that_is_taken_from_it_is_backed_off_and_tried_again(tmp_path: Path) -> None:
    """Somebody cancels its first move."""
    with scaling(tmp_path / "s", MUCH) as (cluster, stream, scaler, noted):
        moves = cluster.coordinator.moves
        wait(stream, lambda: bool(moves.recent()))
        moves.recent()[0].cancel()
        if moves.recent()[0].report().outcome == "done":
            pytest.skip("It was done before anybody could cancel it.")
        wait(stream, lambda: any("failed" in each for each in noted.told))
        failed = next(each for each in noted.told if "failed" in each)
        assert "not carried out" in failed["reason"]
        wait(stream, lambda: "backing-off" in rules(scaler))
        wait(stream, lambda: len(cluster.workers()) >= 3)


def test_the_query_that_is_late_decides(tmp_path: Path) -> None:
    """A second query of the same service has little to do."""
    with scaling(tmp_path / "s", MUCH) as (cluster, stream, scaler, _):
        cluster.register(Waiting(), "calm")
        for epoch in range(4):
            cluster.run_batch(epoch, [epoch], query=f"{QUERY}-calm", operator="calm")
        wait(stream, lambda: len(cluster.workers()) >= 3)
        acted = [each for each in scaler.describe(500)["decisions"] if each["to"]]
        assert {each["query"] for each in acted} == {"counts"}
        assert {q.name for q in scaler.load(frozenset()).queries} == {"counts", "calm"}


def test_a_dead_worker_is_no_reason_to_scale(tmp_path: Path) -> None:
    import os
    import signal

    settings = QUICK.changed({"scale_down_interval": 300.0})
    with scaling(tmp_path / "s", 150, settings, workers=2) as (cluster, stream, scaler, _):
        wait(stream, lambda: "enough" in rules(scaler))
        pid = cluster.coordinator.pids()["w1"]  # type: ignore[index]
        os.kill(pid, signal.SIGKILL)
        stream.batches(10, WAIT_SECONDS)
        ups = [each for each in scaler.describe(500)["decisions"] if each["action"] != "hold"]
        assert not ups
