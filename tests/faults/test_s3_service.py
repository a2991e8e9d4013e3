"""Coordinator and workers with their state on S3, while the store and the workers have bad days."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.faults.s3 import Proxy, proxy
from tests.integration.harness import Cluster, Oracle

from anabranch.errors import LocationError

KEYS = [list(range(n, 60 + n)) * 2 for n in range(9)]


@pytest.fixture
def spoiled() -> Iterator[Proxy]:
    with proxy() as running:
        yield running


def kill_one(cluster: Cluster) -> None:
    os.kill(min(cluster.coordinator.pids().values()), signal.SIGKILL)


@pytest.mark.timeout(120)
def test_batches_wait_for_a_store_that_fails_for_a_while(spoiled: Proxy) -> None:
    oracle, location = Oracle(), spoiled.location()
    with Cluster(location) as cluster:
        assert cluster.run_batch(0, KEYS[0]) == oracle.run_batch(KEYS[0])
        # Everything fails for a time: changelogs, fence, manifest.
        fault = spoiled.spoil("status", times=12)
        assert cluster.run_batch(1, KEYS[1]) == oracle.run_batch(KEYS[1])
        assert fault.hits == 12
        # Puts arrive, their answers are lost.
        lost = spoiled.spoil("lose", method="PUT", times=4)
        assert cluster.run_batch(2, KEYS[2]) == oracle.run_batch(KEYS[2])
        assert lost.hits == 4
        # A new worker loads its state through a store that breaks answers off.
        spoiled.spoil("cut", method="GET", path="changelog", times=3)
        kill_one(cluster)
        assert cluster.run_batch(3, KEYS[3]) == oracle.run_batch(KEYS[3])
    with Cluster(location, workers=3) as cluster:
        assert cluster.run_batch(4, KEYS[4]) == oracle.run_batch(KEYS[4])


@pytest.mark.timeout(120)
def test_a_store_that_stays_away_fails_the_batch_and_nothing_else(spoiled: Proxy) -> None:
    oracle, location = Oracle(), spoiled.location(retry_seconds=0.3)
    with Cluster(location) as cluster:
        assert cluster.run_batch(0, KEYS[0]) == oracle.run_batch(KEYS[0])
        for epoch, path in ((1, ""), (2, "/changelog/"), (3, "/manifests/"), (4, "list-type=2")):
            spoiled.spoil("status", path=path, times=10_000)
            with pytest.raises(LocationError, match="Nothing is lost"):
                cluster.run_batch(epoch, KEYS[epoch])
            spoiled.mend()
            assert cluster.run_batch(epoch, KEYS[epoch]) == oracle.run_batch(KEYS[epoch])
        # The manifest arrives, its answer never does: the batch may run again all the same.
        spoiled.spoil("lose", method="PUT", path="/manifests/", times=10_000)
        with pytest.raises(LocationError, match="Nothing is lost"):
            cluster.run_batch(5, KEYS[5])
        spoiled.mend()
    with Cluster(location) as cluster:
        assert cluster.run_batch(5, KEYS[5]) == oracle.run_batch(KEYS[5])
        assert cluster.run_batch(6, KEYS[6]) == oracle.run_batch(KEYS[6])
