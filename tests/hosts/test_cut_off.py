"""A host is cut off and never healed: batches go on, and are equal to the oracle's.

Nobody is told: the coordinator stops hearing its agent, and tells all lanes and workers. Behind the
cut the agent fences itself.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from tests.hosts.agents import is_alive, until
from tests.hosts.cabled import HOST_TIMEOUT, CabledHosts
from tests.integration.streaming import Stream

from anabranch.errors import ReconfigurationFailed
from anabranch.migration.strategies import STRATEGIES
from anabranch.transport.in_flight import IN_FLIGHT

pytestmark = pytest.mark.timeout(180)

GOES_ON = HOST_TIMEOUT + 12
"""Seconds for batches to go on, on a busy machine; less than a silence of ten and two probes after
the lease."""
BYTES_PER_SECOND = 4_000
"""A move takes several seconds then."""

IN_CI = {"live", "order-unaware"}
EVERY_STRATEGY = [
    pytest.param(name, marks=[] if name in IN_CI else pytest.mark.soak)
    for name in sorted(STRATEGIES)
]


def is_running(cluster: CabledHosts, stream: Stream) -> None:
    """Each host of a worker is used: else its loss would show nothing."""
    stream.batches(2)
    assert all(cluster.workers().values())


def test_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    """Its worker ends too, although nobody can tell it."""
    with CabledHosts(tmp_path) as cluster, Stream(cluster, open_seconds=0.5) as stream:
        is_running(cluster, stream)
        host, address = cluster.host_of("w2"), cluster.launcher.addresses["w2"]
        (pid,) = cluster.workers_of(host).values()
        stream.until(lambda: IN_FLIGHT.count(address) > 0)
        cluster.cut_off(host)
        stream.open_seconds = 0
        stream.batches(3, GOES_ON)
        assert cluster.is_lost(host)
        stream.until(lambda: not IN_FLIGHT.count(address), 5)
        until(lambda: not is_alive(pid), "a zombie lives on", 2 * HOST_TIMEOUT)


@pytest.mark.parametrize("victim", ["w1", "w3"])
@pytest.mark.parametrize("strategy", EVERY_STRATEGY)
def test_while_key_groups_move(tmp_path: Path, strategy: str, victim: str) -> None:
    """A source, or the target: copies, imports, fetches and rows that are passed on hang."""
    with CabledHosts(tmp_path) as cluster, Stream(cluster) as stream:
        is_running(cluster, stream)
        move = cluster.rescale(3, strategy=strategy, bytes_per_second=BYTES_PER_SECOND)
        stream.until(lambda: bool(cluster.host_of("w3")), 30)
        host = cluster.host_of(victim)
        cluster.cut_off(host)
        assert not move.is_done, "The move was over before the cut."
        stream.batches(3, GOES_ON)
        stream.until(lambda: cluster.is_lost(host), GOES_ON)
        with contextlib.suppress(ReconfigurationFailed):  # the query goes on
            assert move.wait(30)
        stream.batches(3, GOES_ON)


@pytest.mark.parametrize(
    ("into", "out_of"), [(True, False), pytest.param(False, True, marks=pytest.mark.soak)]
)
def test_half_a_cut(tmp_path: Path, into: bool, out_of: bool) -> None:
    """It hears nothing, or nobody hears it."""
    with CabledHosts(tmp_path) as cluster, Stream(cluster) as stream:
        is_running(cluster, stream)
        host = cluster.host_of("w1")
        cut = cluster.cut_off(host, into, out_of)
        stream.batches(3, GOES_ON)
        stream.until(lambda: cluster.is_lost(host), GOES_ON)
        assert time.monotonic() - cut > HOST_TIMEOUT / 2, "It was not missed."
