"""After a crash of everything what was hot before it comes first, not what was touched since."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.integration import counting
from tests.integration.harness import KEYSPACE, Cluster, rows_of
from tests.integration.inprocess import NAME, InProcess

from anabranch.durability.heat import HEAT, decode_heat
from anabranch.durability.manifest import Manifest
from anabranch.model.keyspace import HASH
from anabranch.processor.contract import BatchTimes
from anabranch.worker.residency import store_loader as stored
from anabranch.worker.residency.store_loader import StoreLoader

KEYS = range(300)
HOT = {7: 300, 120: 150, 33: 75}
"""Keys of three places, and how many rows of a batch they have."""

BINS = KEYSPACE.groups * KEYSPACE.bins
Place = tuple[int, int]


def place_of(key: int) -> Place:
    hashes = rows_of([key]).column(HASH).to_numpy()
    return int(KEYSPACE.group_of(hashes)[0]), int(KEYSPACE.bin_of(hashes)[0])


def run_until_noted(folder: Path) -> Manifest:
    """Batches with hot keys, until a manifest says so."""
    keys = [key for key, rows in HOT.items() for _ in range(rows)]
    keys = np.random.default_rng(0).permutation([*keys, *KEYS]).tolist()
    with Cluster(folder) as cluster:
        for epoch in range(50):
            cluster.run_batch(epoch, keys)
            manifest = cluster.store.manifest(NAME, epoch)
            if HEAT in manifest.extra:
                return manifest
    pytest.fail("no manifest has a note")


def brought(worker: InProcess) -> list[Place]:
    """All bins that are missing, in the order in which they come in the background."""
    order: list[Place] = []
    while (unit := worker.store_loader._next()) is not None:
        order += [(unit.group, bin_) for bin_ in unit.bins]
        worker.store_loader._bring_unit(unit)
    return order


def test_what_was_hot_before_the_crash_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreLoader, "start", lambda self: None)  # not by itself
    monkeypatch.setattr(stored, "UNIT_BYTES", 1)  # bin by bin
    monkeypatch.setattr(stored, "LOGGED_UNIT_BYTES", 1)
    last = run_until_noted(tmp_path)
    assert len(set(map(place_of, HOT))) == len(HOT)
    worker = InProcess(tmp_path, counting.Counting(), last.epoch, whole_share=1e9)
    cold = next(key for key in KEYS if place_of(key) not in map(place_of, HOT))
    worker.batch(rows_of([cold]), BatchTimes(2000, 0, 0))
    order = brought(worker)
    worker.close()
    assert order[: len(HOT)] == [place_of(key) for key in HOT]
    assert len(order) == BINS


def test_a_second_crash_forgets_nothing(tmp_path: Path) -> None:
    before = run_until_noted(tmp_path)
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(before.epoch + 1, [1])
        # The first manifest after the restart: no worker has said anything yet.
        note = cluster.store.manifest(NAME, before.epoch + 1).extra[HEAT]
    assert note == before.extra[HEAT]
    group, bin_ = place_of(next(iter(HOT)))
    assert np.argmax(decode_heat(note, BINS)) == group * KEYSPACE.bins + bin_


def test_a_worker_that_knows_better_keeps_what_it_knows(tmp_path: Path) -> None:
    last = run_until_noted(tmp_path)
    worker = InProcess(tmp_path, counting.Counting(), last.epoch, whole_share=1e9)
    worker.slot.heat[5] = 1.0
    worker.batch(rows_of([1]), BatchTimes(2000, 0, 0))
    group, bin_ = place_of(next(iter(HOT)))
    assert worker.slot.heat[group * KEYSPACE.bins + bin_] < 2
    worker.close()
