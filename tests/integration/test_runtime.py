"""The runtime with real processes: batches, retries, restarts, kill -9 at every point."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.counting import Counting, Exiting, Failing, Uninstallable
from tests.integration.harness import Cluster, Oracle, rows_of

from anabranch.errors import (
    EpochGap,
    IncompleteBatch,
    InvalidArgument,
    ProcessorError,
    StateMismatch,
)
from anabranch.processes.crash_points import WORKER_POINTS
from anabranch.processes.launcher import LocalLauncher
from anabranch.worker.residency.snapshot_policy import LATE_EPOCHS, PATIENCE


def keys_of(epoch: int, count: int = 300, space: int = 90) -> list[int]:
    chance = random.Random(epoch)
    return [chance.randrange(space) for _ in range(count)]


def run_and_check(cluster: Cluster, oracle: Oracle, epoch: int, lanes: int = 2) -> None:
    assert cluster.run_batch(epoch, keys_of(epoch), lanes) == oracle.run_batch(keys_of(epoch))


def test_batches_retries_and_restart_with_other_parallelism(tmp_path: Path) -> None:
    oracle = Oracle()
    with Cluster(tmp_path, workers=2) as cluster:
        for epoch in range(4):
            run_and_check(cluster, oracle, epoch)
        # The same batch again, as a whole and by one task: the same outputs, no change.
        again = cluster.run_batch(3, keys_of(3))
        assert again == {k: oracle.counts[k] for k in keys_of(3)}
        cluster.run_lane(3, 0, 2, rows_of(keys_of(3)))
        # ... and divided into other lanes.
        assert cluster.run_batch(3, keys_of(3), lanes=5) == again
        run_and_check(cluster, oracle, 4, lanes=5)
    with Cluster(tmp_path, workers=3) as cluster:
        # Spark may run the last batch again after a restart: from the state before it.
        assert cluster.run_batch(4, keys_of(4), lanes=3) == {
            k: oracle.counts[k] for k in keys_of(4)
        }
        for epoch in range(5, 8):
            run_and_check(cluster, oracle, epoch, lanes=3)


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_worker_killed_at_every_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    visit = 1 if point == "loaded" else 3
    monkeypatch.setenv("ANABRANCH_CRASH_AT", f"w1:{point}:{visit}")
    oracle = Oracle()
    with Cluster(tmp_path) as cluster:
        for epoch in range(5):
            run_and_check(cluster, oracle, epoch)
        assert cluster.coordinator.status()["workers"]["w1"]["restarts"] == 1


def test_all_workers_killed_between_and_during_batches(tmp_path: Path) -> None:
    oracle = Oracle()
    chance = random.Random(7)
    with Cluster(tmp_path, workers=3) as cluster:
        for epoch in range(6):
            for pid in cluster.coordinator.pids().values():
                if chance.random() < 0.5:
                    os.kill(pid, signal.SIGKILL)
            run_and_check(cluster, oracle, epoch, lanes=3)


def test_partial_batch_is_an_error_when_the_next_begins(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(0, keys_of(0))
        cluster.run_lane(1, 0, 2, rows_of(keys_of(1)))
        with pytest.raises(IncompleteBatch, match="foreachBatch"):
            cluster.run_batch(2, keys_of(2))
        # Running the batch to its end mends it.
        oracle = Oracle()
        oracle.run_batch(keys_of(0))
        run_and_check(cluster, oracle, 1)
        run_and_check(cluster, oracle, 2)


def test_gaps_and_other_queries_are_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(0, keys_of(0))
        with pytest.raises(EpochGap, match="ahead of"):
            cluster.run_batch(5, keys_of(5))
        with pytest.raises(StateMismatch, match="query-1"):
            cluster.run_batch(1, keys_of(1), query="query-2")
    with Cluster(tmp_path) as cluster, pytest.raises(StateMismatch, match="query-1"):
        cluster.run_batch(1, keys_of(1), query="query-2")


def test_user_error_changes_nothing(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.run_batch(keys_of(0))
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(0, keys_of(0))
        cluster.register(Failing())
        with pytest.raises(ProcessorError, match="user code says no"):
            cluster.run_batch(1, keys_of(1))
        cluster.register(Exiting())
        with pytest.raises(ProcessorError, match="SystemExit: 3"):
            cluster.run_batch(1, keys_of(1))
        cluster.register(Counting())  # the user mends the code and starts the query again
        run_and_check(cluster, oracle, 1)


def test_speculative_attempts_see_the_same_outputs(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Cluster(tmp_path) as cluster, ThreadPoolExecutor(6) as pool:
        cluster.run_batch(0, keys_of(0))
        batch = rows_of(keys_of(1))
        attempts = [
            [pool.submit(cluster.run_lane, 1, lane, 2, batch) for _ in range(3)]
            for lane in range(2)
        ]
        for lane_attempts in attempts:
            first, *others = [sorted(map(str, task.result())) for task in lane_attempts]
            assert all(other == first for other in others)


@pytest.mark.soak
def test_snapshots_and_garbage_collection(tmp_path: Path) -> None:
    oracle = Oracle()
    epochs = int(PATIENCE * LATE_EPOCHS) + 30
    with Cluster(tmp_path) as cluster:
        for epoch in range(epochs):
            run_and_check(cluster, oracle, epoch)
            time.sleep(0.01)
        manifest = cluster.store.manifest("counts", epochs - 1)
    assert manifest.snapshots, f"no snapshot was listed in {epochs} epochs"
    assert len(manifest.changelogs) < 2 * epochs
    assert len(list(tmp_path.glob("operators/counts/manifests/*"))) < 30
    with Cluster(tmp_path) as cluster:
        run_and_check(cluster, oracle, epochs)


def test_first_batch_that_never_ended_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.run_lane(0, 0, 2, rows_of(keys_of(0)))
    with Cluster(tmp_path) as cluster:
        with pytest.raises(IncompleteBatch):
            cluster.run_batch(1, keys_of(1))
        run_and_check(cluster, Oracle(), 0)


def test_tasks_that_are_not_lanes_are_refused(tmp_path: Path) -> None:
    """What union() and coalesce() make of the stage: other numbers, several lanes in one task."""
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(0, keys_of(0))
        with pytest.raises(InvalidArgument, match="own_stage"):
            cluster.run_lane(1, 2, 2, rows_of(keys_of(1)), rows_from_lane=0)
        with pytest.raises(InvalidArgument, match="own_stage"):
            cluster.run_lane(1, 0, 2, rows_of(keys_of(1)), rows_from_lane=1)
        cluster.run_lane(1, 0, 2, rows_of(keys_of(1)), attempt=77)
        with pytest.raises(InvalidArgument, match="own_stage"):
            cluster.run_lane(1, 0, 2, rows_of([]), attempt=77)


def test_an_empty_run_of_a_lane_does_not_stand_for_the_real_one(tmp_path: Path) -> None:
    oracle = Oracle()
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(0, [])
        cluster.run_lane(1, 0, 2, rows_of([]))  # a task that mistook its lane
        run_and_check(cluster, oracle, 1)
        run_and_check(cluster, oracle, 2)


def test_definitions_reach_workers_that_are_still_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that is defined while a worker starts must not miss it."""
    start = LocalLauncher.start
    started: list[str] = []

    is_defined = threading.Event()

    def start_slowly(self: LocalLauncher, config: Any, host: Any, on_end: Any) -> Any:
        process = start(self, config, host, on_end)
        started.append(config.worker)
        assert is_defined.wait(20)  # between its start and its place in the pool
        return process

    monkeypatch.setattr(LocalLauncher, "start", start_slowly)
    with Cluster(tmp_path) as cluster:
        while len(started) < 2:
            time.sleep(0.01)
        cluster.register(Counting())
        is_defined.set()
        run_and_check(cluster, Oracle(), 0)


@pytest.mark.timeout(60)
def test_an_operator_that_cannot_be_installed_does_not_hold_up_workers(tmp_path: Path) -> None:
    oracle = Oracle()
    with Cluster(tmp_path) as cluster:
        run_and_check(cluster, oracle, 0)
        with pytest.raises(ProcessorError, match="not on this machine"):
            cluster.register(Uninstallable(), "broken")
        # The workers that come up next get both operators.
        for pid in cluster.coordinator.pids().values():
            os.kill(pid, signal.SIGKILL)
        run_and_check(cluster, oracle, 1)


def test_status_tells_how_much_is_in_memory_and_was_found_there(tmp_path: Path) -> None:
    keys, one = list(range(300)), [5] * 100

    def told(cluster: Cluster) -> tuple[float, float | None]:
        operator = cluster.coordinator.status()["operators"]["counts"]
        return operator["in_memory"], operator["hit_rate"]

    with Cluster(tmp_path, state="remote", whole_share=1e9) as cluster:
        assert told(cluster) == (1.0, None)  # there is no state yet
        cluster.run_batch(0, keys)
        assert told(cluster)[1] == 1.0
    with Cluster(tmp_path, state="remote", whole_share=1e9) as cluster:
        assert told(cluster) == (0.0, None)
        cluster.run_batch(1, one)
        assert told(cluster) == (0.0, 0.0), "all rows of a key that is read are misses"
    with Cluster(tmp_path) as cluster:  # here key groups are small, and read whole
        assert told(cluster) == (0.0, None)
        cluster.run_batch(2, keys)
        assert told(cluster) == (1.0, 0.0)
        cluster.run_batch(3, keys)
        assert told(cluster) == (1.0, 0.5)
    others: list[tuple[Any, float | None]] = [
        ({"state": "local"}, 0.0),
        ({"backend": "rocksdb"}, None),
    ]
    for epoch, (settings, rate) in enumerate(others, start=4):
        with Cluster(tmp_path, local_dir=f"{tmp_path}-local", **settings) as cluster:
            assert told(cluster) == (0.0, None)
            cluster.run_batch(epoch, keys)
            assert told(cluster) == (1.0, rate)
