"""Real processes are rescaled, drained and rebalanced while batches run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.streaming import MovingCluster, Stream, keys_of

from anabranch.coordinator import move_runner as reconfigurer
from anabranch.coordinator.copy_rate import CopyRate
from anabranch.coordinator.rate_controller import START_BYTES_PER_SECOND
from anabranch.errors import InvalidArgument
from anabranch.migration.strategies import STRATEGIES

WAIT = 60
SLOW: dict[str, Any] = {"bytes_per_second": 20_000}

MECHANISMS = {
    "live": {"waves"},
    "stop-restart": {"gated_ms", "begins_held", "loaded"},
    "pause": {"gated_ms", "begins_held"},
    "replicate": {"shadowed"},
    "megaphone": {"steps"},
    "rhino": {"handovers"},
    "order-unaware": {"waited"},
    "meces": {"rounds", "connected"},
    "drrs": {"subscales", "ready_first"},
    "lazy": {"connected"},
}
"""Counters in the report of what makes a strategy itself; the others' are not there."""

OPTIONS: dict[str, dict[str, Any]] = {
    "pause": SLOW,
    "order-unaware": SLOW,
    "drrs": {**SLOW, "subscale": 2},
}
"""So that batches meet a move of so little state."""

SHARED = {"waited"}
"""Others wait too, now and then."""


EPOCHS_MAX = 100
"""Until then every strategy has shown what it does."""


def scaled_out(cluster: MovingCluster, strategy: str) -> set[str]:
    """From 2 to 3 workers; what the report counted."""
    out = cluster.rescale(3, strategy=strategy, **OPTIONS.get(strategy, {}))
    assert out.wait(WAIT)
    assert out.report().outcome == "done"
    return {name for name, count in out.report().counters.items() if count}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_out_in_drain_rebalance_and_double(tmp_path: Path, strategy: str) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(3)
        found = scaled_out(cluster, strategy)
        while not MECHANISMS[strategy] <= found and stream.epoch < EPOCHS_MAX:
            # No batch met the move: on a slow machine it may fall between two of them.
            assert cluster.rescale(2, strategy=strategy).wait(WAIT)
            stream.batches(2)
            found = scaled_out(cluster, strategy)
        assert MECHANISMS[strategy] <= found
        others = set().union(*MECHANISMS.values()) - MECHANISMS[strategy] - SHARED
        assert not others & found
        assert sorted(cluster.workers().values()) == [10, 11, 11]
        stream.batches(2)
        assert cluster.rescale(2, strategy=strategy).wait(WAIT)
        assert cluster.workers() == {"w1": 16, "w2": 16}
        stream.batches(2)
        assert cluster.move([0, 1, 2, 3, 4, 5], to="w2", strategy=strategy).wait(WAIT)
        assert cluster.rebalance(strategy=strategy).wait(WAIT)
        assert max(cluster.workers().values()) <= 21
        first = cluster.rescale(4, strategy=strategy)
        second = cluster.rescale(3, strategy=strategy)
        assert first.wait(WAIT)
        assert second.wait(WAIT)
        assert second.report().outcome == "done"
        assert first.report().outcome != "done" or first.report().groups == 0
        stream.batches(2)
        assert cluster.drain("w1", strategy=strategy).wait(WAIT)
        assert "w1" not in cluster.workers()
        stream.batches(2)


def test_a_slow_batch_is_not_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wave waits for a commit, also if that takes longer than a query that does nothing."""
    monkeypatch.setattr(reconfigurer, "IDLE_SECONDS", 0.05)
    with MovingCluster(tmp_path) as cluster, Stream(cluster, open_seconds=0.4) as stream:
        stream.batches(2)
        before = stream.epoch
        move = cluster.move([0, 1, 2, 3, 4, 5], to="w2", wave=1)
        assert move.wait(WAIT)
        assert stream.epoch - before >= move.report().counters["waves"] - 1


def test_slow_batches_slow_copies_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And when batches are quick again, copies become faster again."""
    told: list[int] = []
    tell = CopyRate.tell

    def listen(self: CopyRate) -> None:
        tell(self)
        assert self.now is not None
        told.append(self.now)

    monkeypatch.setattr(CopyRate, "tell", listen)
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        stream.open_seconds = 1.2
        # A wave waits for a commit, so that this takes about 16 batches.
        move = cluster.move(range(32), to="w2", wave=1, latency_target=0.5)
        stream.until(lambda: bool(told) and told[-1] < START_BYTES_PER_SECOND)
        stream.open_seconds = 0
        stream.until(lambda: told[-1] > min(told))
        assert move.wait(WAIT)
        assert move.report().counters["slowdowns"] > 0


@pytest.mark.parametrize("strategy", ["live", "lazy", "pause"])
def test_the_load_of_a_key_group_goes_with_it(tmp_path: Path, strategy: str) -> None:
    """Else what has just moved would look idle, and `rebalance` would give its owner more."""
    with MovingCluster(tmp_path) as cluster:
        for epoch in range(3):
            cluster.run_batch(epoch, keys_of(epoch))
        before = cluster.coordinator.moves._loads()
        assert cluster.move(range(8), to="w2", strategy=strategy).wait(WAIT)
        assert cluster.coordinator.moves._loads() == before
        assert all(before[group].rows for group in range(8))


def test_requests_that_overlap(tmp_path: Path) -> None:
    with MovingCluster(tmp_path, workers=4) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        moves = [cluster.rescale(n) for n in (1, 3, 2)]
        assert all(move.wait(WAIT) for move in moves)
        assert [move.report().outcome == "done" for move in moves][-1]
        assert cluster.workers() == {"w1": 16, "w2": 16}
        stream.batches(2)


def test_cancel_and_retarget(tmp_path: Path) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        before = cluster.coordinator.moves.plan().owners
        move = cluster.rescale(4, bytes_per_second=500_000)  # slow enough to be caught half way
        stream.batches(1)
        back = move.cancel()
        assert move.wait(WAIT)
        assert back.wait(WAIT)
        assert "cancelled" in move.report().outcome
        assert cluster.coordinator.moves.plan().owners == before
        assert cluster.workers() == {"w1": 16, "w2": 16}
        move = cluster.rescale(4, bytes_per_second=500_000)
        other = move.retarget(3)
        assert move.wait(WAIT)
        assert other.wait(WAIT)
        assert len(cluster.workers()) == 3
        stream.batches(2)


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(3)
        plan = cluster.rescale(4, dry_run=True)
        assert len(plan.moves) == 16
        assert plan.bytes > 0
        assert plan.seconds > 0
        assert "nothing was done" in str(plan)
        assert cluster.workers() == {"w1": 16, "w2": 16}
        assert cluster.coordinator.moves.plan().workers == ("w1", "w2")


def test_an_idle_query_can_be_rescaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconfigurer, "IDLE_SECONDS", 0.1)
    with MovingCluster(tmp_path) as cluster:
        with Stream(cluster) as stream:
            stream.batches(3)
        for strategy in ("live", "megaphone", "stop-restart"):
            assert cluster.rescale(3, strategy=strategy).wait(WAIT)
            assert cluster.rescale(2, strategy=strategy).wait(WAIT)
        keys = list(range(300))
        assert cluster.run_batch(stream.epoch, keys) == stream.oracle.run_batch(keys)


def test_bad_requests_are_refused_at_once(tmp_path: Path) -> None:
    with MovingCluster(tmp_path) as cluster:
        requests: list[Callable[[], object]] = [
            lambda: cluster.rescale(0),
            lambda: cluster.rescale(33),
            lambda: cluster.rescale(2.5),  # type: ignore[call-overload]
            lambda: cluster.rescale(True),
            lambda: cluster.rescale(3, strategy=["live"]),  # type: ignore[call-overload]
            lambda: cluster.rescale(3, strategy="teleport"),
            lambda: cluster.rescale(3, wave=0),
            lambda: cluster.rescale(3, strategy="pause", wave=4),
            lambda: cluster.rescale(3, strategy="megaphone", plan="none"),
            lambda: cluster.rescale(3, assignment="chaos"),
            lambda: cluster.rescale(3, bytes_per_second=-1),
            lambda: cluster.rescale(3, bytes_per_second=0.5),
            lambda: cluster.rescale(3, latency_target=0),
            lambda: cluster.rescale(3, latency_target=True),
            lambda: cluster.move([99], to="w1"),
            lambda: cluster.move([1], to="w9"),
            lambda: cluster.drain("w9"),
        ]
        for wrong in requests:
            with pytest.raises(InvalidArgument):
                wrong()
        assert cluster.coordinator.moves.plan().workers == ("w1", "w2")
