"""The wall clock is set to another time while a query runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from tests.integration.harness import Cluster, Oracle
from tests.integration.streaming import MovingCluster
from tests.unit.processor.rows.support import Service, define
from tests.unit.processor.rows.test_expiring import SCHEMA, TTL_MS, Expiring

from anabranch.durability.store import StateStore
from anabranch.errors import LocationInUse

HOUR_MS = 3_600_000


class Shifted:
    """A wall clock that is so many seconds off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        real, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real() + self.seconds)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(self.seconds * 1e9))


@pytest.mark.timeout(120)
def test_batches_and_moves_do_not_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, clock = Oracle(), Shifted(monkeypatch)
    keys = list(range(50))
    with MovingCluster(tmp_path) as cluster:
        for epoch, jump in enumerate((0, 86_400, -10 * 86_400, 86_400)):
            clock.seconds += jump
            assert cluster.run_batch(epoch, keys) == oracle.run_batch(keys)
        started = cluster.rescale(3)
        clock.seconds -= 86_400
        assert cluster.run_batch(4, keys) == oracle.run_batch(keys)
        clock.seconds += 2 * 86_400
        assert started.wait(60)
        report = started.report()
        assert 0 <= report.seconds < 60
        for batch in cluster.coordinator.status()["operators"]["counts"]["batches"]:
            assert 0 <= batch["seconds"] < 60
    # Files are told apart by epochs, not by their age.
    clock.seconds = -400 * 86_400
    with Cluster(tmp_path, workers=3) as cluster:
        assert cluster.run_batch(5, keys) == oracle.run_batch(keys)
        kept = cluster.store.epochs("counts")
        clock.seconds = 400 * 86_400
        cluster.store.collect_garbage("counts")
        assert cluster.store.epochs("counts") == kept
        assert cluster.run_batch(6, keys) == oracle.run_batch(keys)


def test_a_lock_has_no_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Shifted(monkeypatch)
    store = StateStore(tmp_path).open()
    clock.seconds = 400 * 86_400
    with pytest.raises(LocationInUse):
        StateStore(tmp_path).open()
    clock.seconds = -400 * 86_400
    store.check_fence()
    store.close()


def test_state_outlives_a_clock_that_goes_back() -> None:
    definition = define(Expiring(), SCHEMA, ["k"], "k long, text string", "processingtime")
    worker = Service(definition).with_types(SCHEMA)
    now_ms = HOUR_MS
    worker.batch([(1, "set", 7)], now_ms=now_ms)
    # An hour back: what was there stays, for longer than it would have.
    for at in (0, TTL_MS, now_ms + TTL_MS - 1):
        assert worker.batch([(1, "look", 0)], now_ms=at)[0]["text"] == "((7,), [], [])"
    assert worker.batch([(1, "look", 0)], now_ms=now_ms + TTL_MS)[0]["text"] == "(None, [], [])"
    # Back again: what has expired does not come back.
    assert worker.batch([(1, "look", 0)], now_ms=now_ms)[0]["text"] == "(None, [], [])"
    assert sum(state.num_rows for state in worker.states.values()) == 0


class Alarm(StatefulProcessor):
    """A timer ten seconds after each row."""

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for _ in rows:
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 10_000)
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(k=key[0], at=expiredTimerInfo.getExpiryTimeInMs())


def test_timers_fire_once_whichever_way_the_clock_goes() -> None:
    definition = define(Alarm(), "k long", ["k"], "k long, at long", "processingtime")
    worker = Service(definition).with_types("k long")
    assert worker.batch([(1,)], now_ms=HOUR_MS) == []
    # Back: not early, and a new timer is due by the new time.
    assert worker.batch([(2,)], now_ms=0) == []
    assert worker.batch([], now_ms=10_001) == [{"k": 2, "at": 10_000}]
    assert worker.batch([], now_ms=0) == []
    # Ahead: due at once, and only once.
    assert worker.batch([], now_ms=2 * HOUR_MS) == [{"k": 1, "at": HOUR_MS + 10_000}]
    for now_ms in (HOUR_MS, 3 * HOUR_MS):
        assert worker.batch([], now_ms=now_ms) == []
