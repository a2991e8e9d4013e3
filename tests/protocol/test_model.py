"""Routing: who owns which key group, and which lane carries it."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.model.ids import WorkerId
from anabranch.model.keyspace import KeySpace
from anabranch.model.routing import initial_routing, lane_groups

NAMES = [WorkerId("w1"), WorkerId("w2"), WorkerId("w3")]


def test_initial_routing_is_even() -> None:
    routing = initial_routing(8, NAMES)
    assert routing.version == 1
    assert [len(routing.groups_of(name)) for name in NAMES] == [3, 3, 2]
    assert routing.owner(4) == "w2"


def test_groups_are_divided_by_owner() -> None:
    routing = initial_routing(8, NAMES)
    divided = routing.by_owner([7, 1, 0, 3])
    assert divided == {"w2": (7, 1), "w1": (0, 3)}
    for worker, groups in divided.items():
        assert set(groups) <= set(routing.groups_of(worker))


@pytest.mark.parametrize("lanes", [1, 3, 8, 11])
def test_every_key_group_belongs_to_one_lane(lanes: int) -> None:
    carried = [g for lane in range(lanes) for g in lane_groups(lane, lanes, 8)]
    assert sorted(carried) == list(range(8))


def test_hashes_are_divided_as_spark_does_it() -> None:
    space = KeySpace(groups=8, bins=4)
    hashes = np.array([0, 7, 8, -1, -(2**63), 2**63 - 1], dtype=np.int64)
    assert space.group_of(hashes).tolist() == [int(h) % 8 for h in hashes]
    assert space.bin_of(hashes).tolist() == [int(h) // 8 % 4 for h in hashes]
