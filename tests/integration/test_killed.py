"""kill -9 of source and target at every step of every strategy, while batches run."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.streaming import CaseCluster, CaseStream, MovingCluster, Stream

from anabranch.migration.strategies import STRATEGIES
from anabranch.processes.crash_points import MOVE_POINTS

WAIT = 60
TRIES = 6
"""About one in six misses a point that is a matter of luck: with three tries, a soak in five."""

DIRECTIONS: dict[str, tuple[int, int, dict[str, str]]] = {
    "out": (2, 3, {"source": "w1", "target": "w3"}),
    "in": (3, 2, {"source": "w3", "target": "w1"}),
}
"""Workers before and after; who is killed."""


def at(role: str, *points: str) -> frozenset[str]:
    return frozenset(f"{role} {point}" for point in points)


CONNECT = at("target", "before-connect", "after-connect") | at("source", "connected")
COPY = at("target", "before-copy", "copy-slice", "after-copy") | at("source", "copy-slice")
CATCH_UP = at("target", "before-catch-up", "after-catch-up") | at("source", "deltas-served")
LAG = at("target", "before-lag", "after-lag") | at("source", "lag-served")
FLIP = at("target", "before-grant", "after-grant", "fetched") | at(
    "source", "before-release", "after-release", "forwarding", "fetch-asked", "fetch-served"
)
IMPORT = at("target", "before-import", "imported", "after-import")
CLEAN = at("source", "before-clean", "after-clean")
SAVE = ("before-save", "after-save")
LOAD = ("before-load", "after-load")

REACHED: dict[str, frozenset[str]] = {
    "live": COPY | CATCH_UP | FLIP | IMPORT | CLEAN,
    "pause": FLIP | IMPORT,
    "replicate": COPY | CATCH_UP | LAG | FLIP | IMPORT,
    "megaphone": FLIP | IMPORT,
    "rhino": COPY | CATCH_UP | FLIP | IMPORT,
    "order-unaware": FLIP | IMPORT,
    "meces": CONNECT | FLIP | IMPORT | CLEAN,
    "drrs": FLIP | IMPORT,
    "lazy": CONNECT | FLIP | IMPORT | CLEAN,
}

STOP_RESTART: dict[str, frozenset[str]] = {
    "out": at("source", *SAVE, *LOAD) | at("target", *LOAD),
    "in": at("source", *SAVE) | at("target", *SAVE, *LOAD),
}


def reached(strategy: str, direction: str) -> frozenset[str]:
    """Where a worker can be killed in a move; each of these points is reached."""
    if strategy == "stop-restart":
        return STOP_RESTART[direction]
    # The last clean-up of a worker that leaves competes with its end, unless it is a step.
    return REACHED[strategy] | (CLEAN if direction == "out" else frozenset())


OVERLAP: dict[str, Any] = {"pause_seconds": 0.0, "open_seconds": 0.15}
"""Lanes are open all the time, so that owners change under them."""
APART: dict[str, Any] = {"pause_seconds": 0.3}
"""State arrives between two batches: none of them fetches it."""
STREAMS = {"forwarding": OVERLAP, "fetched": OVERLAP, "imported": APART}
"""What it takes to get there; still a matter of luck, so these are tried again."""
SLOW_BYTES = {"out": 40_000, "in": 20_000}
"""A second for each target, so that lanes come while state is on its way."""


@contextlib.contextmanager
def running(folder: Path, direction: str, **timing: Any) -> Iterator[tuple[MovingCluster, Stream]]:
    """A counter when scaling out; else, and with lanes that overlap, timers, windows and TTL."""
    workers = DIRECTIONS[direction][0]
    if direction == "out" and not timing.get("open_seconds"):
        with MovingCluster(folder, workers) as cluster, Stream(cluster, **timing) as stream:
            yield cluster, stream
    else:
        with CaseCluster(folder, workers) as cases, CaseStream(cases, **timing) as stream:
            yield cases, stream


def is_killed(caplog: pytest.LogCaptureFixture, worker: str, seconds_max: float = 3) -> bool:
    """Whether the coordinator has seen a worker die, be it one that was to leave anyway."""
    limit = time.monotonic() + seconds_max
    while True:
        messages = [record.getMessage() for record in caplog.records]
        for message in messages:
            if message.startswith(f"Worker {worker}") and "killed by signal 9" in message:
                return True
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)


class Killer:
    """Moves with one kill -9 each."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        self._folder, self._monkeypatch, self._caplog = folder, monkeypatch, caplog
        self._runs = 0
        caplog.set_level(logging.INFO, "anabranch.coordinator")

    def kills(self, strategy: str, direction: str, spot: str) -> bool:
        """Whether the point was reached; every batch was right in any case."""
        tries = TRIES if spot.split()[1] in STREAMS else 1
        return any(self._kills(strategy, direction, spot) for _ in range(tries))

    def _kills(self, strategy: str, direction: str, spot: str) -> bool:
        self._runs += 1
        role, point = spot.split()
        before, after, workers = DIRECTIONS[direction]
        victim = workers[role]
        # By then all processes have been replaced.
        process = f"{victim}.1" if point in LOAD else victim
        self._monkeypatch.setenv("ANABRANCH_CRASH_AT", f"{process}:{point}:1")
        self._caplog.clear()
        timing = STREAMS.get(point, {})
        rate = {"bytes_per_second": SLOW_BYTES[direction]}
        slow: dict[str, Any] = rate if timing is OVERLAP else {}
        folder = self._folder / str(self._runs)
        with running(folder, direction, **timing) as (cluster, stream):
            stream.batches(3)
            move = cluster.rescale(after, strategy=strategy, **slow)
            assert move.wait(WAIT), spot
            assert move.report().outcome == "done", spot
            assert len(cluster.workers()) == after, spot
            stream.batches(2)
            was_killed = is_killed(self._caplog, victim)
            assert cluster.rescale(before, strategy=strategy).wait(WAIT), spot
            stream.batches(2)
        return was_killed


@pytest.fixture
def killer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Killer:
    return Killer(tmp_path, monkeypatch, caplog)


QUICK = [
    ("live", "out", "source copy-slice"),
    ("live", "in", "target after-grant"),
    ("live", "out", "source after-release"),
    ("stop-restart", "out", "target after-load"),
    ("lazy", "in", "source fetch-served"),
    ("meces", "out", "target imported"),
    ("drrs", "out", "target imported"),
    ("pause", "out", "source after-release"),
    ("megaphone", "in", "target after-grant"),
    ("order-unaware", "out", "source fetch-served"),
    ("replicate", "out", "target after-catch-up"),
    ("rhino", "out", "target after-copy"),
]


@pytest.mark.parametrize(("strategy", "direction", "spot"), QUICK)
def test_killed(killer: Killer, strategy: str, direction: str, spot: str) -> None:
    assert killer.kills(strategy, direction, spot)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_killed_at_every_point(killer: Killer, strategy: str, direction: str) -> None:
    spots = sorted(reached(strategy, direction))
    assert [spot for spot in spots if not killer.kills(strategy, direction, spot)] == []


def test_a_kill_is_expected_at_every_point() -> None:
    """A new point needs its place above, or nobody is killed there."""
    spots = [spot for s in STRATEGIES for d in DIRECTIONS for spot in reached(s, d)]
    assert {spot.split()[1] for spot in spots} == set(MOVE_POINTS)
