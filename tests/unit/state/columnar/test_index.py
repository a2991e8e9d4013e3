"""The hash index against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.state.columnar.index import HashIndex


@pytest.mark.parametrize("hash_range", [40, 10**12])
def test_random_changes(hash_range: int) -> None:
    rng = np.random.default_rng(7)
    index = HashIndex()
    model: dict[int, int] = {}  # slot -> hash
    versions = []
    for step in range(60):
        count = int(rng.integers(1, 200))
        hashes = np.sort(rng.integers(-hash_range, hash_range, count))
        slots = np.arange(step * 1000, step * 1000 + count, dtype=np.int32)
        index = index.add(hashes, slots, repeats=hash_range < 1000)
        model.update(zip(slots.tolist(), hashes.tolist(), strict=True))
        gone = [slot for slot in model if rng.random() < 0.3]
        gone.sort(key=lambda slot: model[slot])
        gone_hashes = np.array([model[slot] for slot in gone], np.int64)
        index = index.remove(gone_hashes, np.array(gone, np.int32))
        for slot in gone:
            del model[slot]
        versions.append((index, dict(model)))
    for some, expected in versions:
        assert len(some) == len(expected)
        found_hashes, found_slots = some.entries()
        assert (np.diff(found_hashes) >= 0).all()
        assert dict(zip(found_slots.tolist(), found_hashes.tolist(), strict=True)) == expected


def test_find_and_pairs() -> None:
    rng = np.random.default_rng(3)
    hashes = np.unique(rng.integers(-(2**63), 2**63 - 1, 5000))
    order = rng.permutation(len(hashes))
    index = HashIndex()
    slots = np.arange(len(hashes), dtype=np.int32)
    for part in np.array_split(order, 40):
        some = np.sort(part)
        index = index.add(hashes[some], slots[some])
    needles = np.sort(np.concatenate((hashes[::3], hashes[::5] + 1)))
    expected = dict(zip(hashes.tolist(), slots.tolist(), strict=True))
    assert index.find(needles).tolist() == [expected.get(h, -1) for h in needles.tolist()]
    at, found = index.pairs(needles)
    got = dict(zip(needles[at].tolist(), found.tolist(), strict=True))
    assert got == {h: expected[h] for h in needles.tolist() if h in expected}


def test_removed_hash_can_come_back() -> None:
    one = np.array([5], np.int64)
    index = HashIndex().add(one, np.array([0], np.int32))
    index = index.remove(one, np.array([0], np.int32))
    assert index.find(one).tolist() == [-1]
    index = index.add(one, np.array([1], np.int32))
    assert index.find(one).tolist() == [1]
    assert len(index) == 1
