"""Packs and lists in a real service: killed workers, restarts, savepoints, old epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.harness import KEYSPACE, Cluster, Oracle
from tests.integration.test_runtime import keys_of, run_and_check

from anabranch.durability import manifest_content
from anabranch.durability.blobs import BlobStore
from anabranch.durability.names import list_folder
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore

LANES = 8
POINTS = "w1:pack-written:5,w2:pack-written:9,w1.1:changelog-written:6,w2.1:pack-written:4"


@pytest.fixture(autouse=True)
def _small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_content, "ADDED_BYTES_MAX", 1500)
    monkeypatch.setattr(manifest_content, "ADDED_EPOCHS", 1)


def test_workers_are_killed_around_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CRASH_AT", POINTS)
    oracle, state = Oracle(), tmp_path / "state"
    with Cluster(state) as cluster:
        for epoch in range(12):
            run_and_check(cluster, oracle, epoch, lanes=LANES)
        workers = cluster.coordinator.status()["workers"]
        assert sum(worker["restarts"] for worker in workers.values()) >= 3
        saved = cluster.store.blobs.list(list_folder("counts"))
        assert saved, "manifests share lists"
    monkeypatch.delenv("ANABRANCH_CRASH_AT")
    with Cluster(state, workers=3) as cluster:
        # The last batch may run again, from the state before it.
        assert cluster.run_batch(11, keys_of(11), lanes=3) == {
            key: oracle.counts[key] for key in keys_of(11)
        }
        for epoch in range(12, 40):  # beyond a collection of garbage
            run_and_check(cluster, oracle, epoch, lanes=LANES)
    with StateStore(BlobStore(str(state))).open() as store:
        epochs = store.epochs("counts")
        assert epochs[-1] == 39
        assert epochs[0] > 11
        for epoch in epochs:
            store.verify(store.manifest("counts", epoch))


def test_a_savepoint_of_packs_and_lists_goes_on(tmp_path: Path) -> None:
    from contextlib import nullcontext

    from anabranch.durability.savepoint import create_savepoint

    oracle = Oracle()
    with Cluster(tmp_path / "state") as cluster:
        for epoch in range(6):
            run_and_check(cluster, oracle, epoch, lanes=LANES)
        saved = create_savepoint(cluster.store, nullcontext(), "six")
        saved.verify()
    other = tmp_path / "other"
    with StateStore(BlobStore(str(other))).open() as store:
        restore_savepoint(store, saved.path, KEYSPACE)
    with Cluster(other, workers=3) as cluster:
        for epoch in range(5):
            run_and_check(cluster, oracle, epoch, lanes=4)
