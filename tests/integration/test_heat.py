"""After a crash of everything what was hot before it comes first, not what was touched since."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.durability.blobs import BlobStore
from anabranch.durability.manifest import Manifest
from anabranch.durability.store import StateStore
from anabranch.model.keyspace import HASH
from anabranch.processor.contract import BatchTimes
from anabranch.runtime import stored
from anabranch.runtime.config import WorkerConfig
from anabranch.runtime.heat import HEAT, decode_heat
from anabranch.runtime.operator import packed
from anabranch.runtime.stored import StoredGroups
from anabranch.runtime.worker import Worker
from anabranch.transport.wire import encode
from tests.integration import counting
from tests.integration.harness import KEYSPACE, Cluster, rows_of

KEYS = range(300)
HOT = {7: 300, 120: 150, 33: 75}
"""Keys of three places, and how many rows of a batch they have."""

GROUPS = list(range(KEYSPACE.groups))
SIZES = KEYSPACE.groups, KEYSPACE.bins
BINS = KEYSPACE.groups * KEYSPACE.bins
Place = tuple[int, int]


def place_of(key: int) -> Place:
    hashes = rows_of([key]).column(HASH).to_numpy()
    return int(KEYSPACE.group_of(hashes)[0]), int(KEYSPACE.bin_of(hashes)[0])


def run_until_noted(folder: Path) -> None:
    """Batches with hot keys, until a manifest says so."""
    keys = [key for key, rows in HOT.items() for _ in range(rows)]
    keys = np.random.default_rng(0).permutation([*keys, *KEYS]).tolist()
    with Cluster(folder) as cluster:
        for epoch in range(50):
            cluster.run_batch(epoch, keys)
            if HEAT in cluster.store.manifest("counts", epoch).extra:
                return
    pytest.fail("no manifest has a note")


def last_manifest(folder: Path) -> Manifest:
    with StateStore(str(folder)).open() as store:
        return store.manifest("counts", store.epochs("counts")[-1])


class Restarted:
    """A worker in this process: it has what the location has, and brings bins when it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(StoredGroups, "start", lambda self: None)
        monkeypatch.setattr(stored, "UNIT_BYTES", 1)  # bin by bin
        config = WorkerConfig(
            "w1", "again-1", "token", "127.0.0.1", str(folder), *SIZES, whole_share=1e9
        )
        self._base = last_manifest(folder).epoch
        self._worker = Worker(config, BlobStore(str(folder)))
        self._worker.action("install", packed("counts", 1, counting.Counting(), False))
        self._worker.action("grant", encode({"groups": GROUPS, "version": 1}))

    def batch(self, keys: list[int]) -> None:
        header: dict[str, Any] = {
            "operator": "counts",
            "definition": 1,
            "epoch": self._base + 1,
            "base": self._base,
            "lane": 0,
            "lanes": 1,
            "attempt": 1,
            "groups": GROUPS,
            "version": 1,
            "times": asdict(BatchTimes(2000, 0, 0)),
            "initial": [],
        }
        self._worker.exchange(header, iter([rows_of(keys)]))

    def brought(self) -> list[Place]:
        """All bins that were missing, in the order in which they came."""
        order: list[Place] = []
        groups = self._worker._stored
        while (unit := groups._next()) is not None:
            _, record, bins = unit
            order += [(record.group, bin_) for bin_ in bins]
            groups._bring_unit(*unit)
        return order


def test_what_was_hot_before_the_crash_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_until_noted(tmp_path)
    worker = Restarted(tmp_path, monkeypatch)
    cold = next(key for key in KEYS if place_of(key) not in map(place_of, HOT))
    worker.batch([cold])
    order = worker.brought()
    assert order[: len(HOT)] == [place_of(key) for key in HOT]
    assert len(order) == BINS


def test_a_second_crash_forgets_nothing(tmp_path: Path) -> None:
    run_until_noted(tmp_path)
    before = last_manifest(tmp_path)
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(before.epoch + 1, [1])
        # The first manifest after the restart: no worker has said anything yet.
        note = cluster.store.manifest("counts", before.epoch + 1).extra[HEAT]
    assert note == before.extra[HEAT]
    heat = decode_heat(note, BINS)
    group, bin_ = place_of(next(iter(HOT)))
    assert np.argmax(heat) == group * KEYSPACE.bins + bin_
