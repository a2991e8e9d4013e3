"""A worker is cut off and never healed: batches go on, and are equal to the oracle's.

Its process lives on behind its cable, as a zombie. No socket notices anything: only the
coordinator does, after a while, and tells all lanes and workers.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from tests.hosts.cabled import CabledCluster
from tests.integration.streaming import Stream

from anabranch.errors import ReconfigurationFailed
from anabranch.migration.strategies import STRATEGIES
from anabranch.transport.in_flight import IN_FLIGHT

LOST_AFTER = 1.5
"""In the place of `host_timeout`."""

GOES_ON = 15
"""Seconds for batches to go on, on a busy machine; less than a silence of ten and two probes."""

IN_CI = {"live", "order-unaware"}
EVERY_STRATEGY = [
    pytest.param(name, marks=[] if name in IN_CI else pytest.mark.soak)
    for name in sorted(STRATEGIES)
]


def test_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    with CabledCluster(tmp_path) as cluster, Stream(cluster, open_seconds=0.5) as stream:
        stream.batches(2)
        time.sleep(0.3)
        cluster.cut_off("w2", LOST_AFTER)
        stream.open_seconds = 0
        stream.batches(3, GOES_ON)
        zombie = cluster.launcher.all[1]
        stream.until(lambda: not IN_FLIGHT.count(zombie.address), 5)


@pytest.mark.parametrize("victim", ["w1", "w3"])
@pytest.mark.parametrize("strategy", EVERY_STRATEGY)
def test_while_key_groups_move(tmp_path: Path, strategy: str, victim: str) -> None:
    """A source, or the target: copies, imports, fetches and rows that are passed on hang."""
    with CabledCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(3)
        move = cluster.rescale(3, strategy=strategy, bytes_per_second=40_000)
        stream.until(lambda: "w3" in cluster.launcher.newest, 30)
        time.sleep(0.4)
        cluster.cut_off(victim, LOST_AFTER)
        stream.batches(3, GOES_ON)
        with contextlib.suppress(ReconfigurationFailed):  # the query goes on
            move.wait(30)
        stream.batches(3, GOES_ON)


@pytest.mark.parametrize(
    ("inward", "outward"), [(True, False), pytest.param(False, True, marks=pytest.mark.soak)]
)
def test_half_a_cut(tmp_path: Path, inward: bool, outward: bool) -> None:
    with CabledCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        victim = cluster.launcher.newest["w1"]
        victim.cable.cut(inward, outward)
        time.sleep(LOST_AFTER)
        victim.lose()
        stream.batches(3, GOES_ON)
