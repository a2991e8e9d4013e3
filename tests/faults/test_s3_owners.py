"""Several services on one S3 location: the newest owns it, and what others send late is void."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.faults.s3 import Proxy, S3Server, proxy, server

from anabranch.durability.manifest import Manifest, next_manifest
from anabranch.durability.store import StateStore
from anabranch.errors import LocationInUse
from anabranch.model.keyspace import KeySpace

KEYSPACE = KeySpace(4, 2)


def manifest(epoch: int, writer: int) -> Manifest:
    """`writer` tells whose it is."""
    return next_manifest(
        None,
        epoch,
        [],
        operator="op",
        query_id=None,
        keyspace=KEYSPACE,
        description={},
        committed_at=writer,
    )


def opened(place: S3Server, prefix: str) -> StateStore:
    store = StateStore(place.location(prefix)).open()
    store.open_operator("op", {}, KEYSPACE)
    return store


@pytest.fixture
def slow() -> Iterator[Proxy]:
    with proxy() as running:
        yield running


def test_a_new_service_takes_over(slow: Proxy) -> None:
    first = opened(server(), "take-over")
    first.commit(manifest(0, 1))
    second = opened(server(), "take-over")
    with pytest.raises(LocationInUse, match="taken over"):
        first.commit(manifest(1, 1))
    assert second.epochs("op") == [0]
    second.commit(manifest(1, 2))
    with pytest.raises(LocationInUse, match="taken over"):
        first.collect_garbage("op")


def test_a_manifest_that_arrives_late_does_not_count(slow: Proxy) -> None:
    first = opened(slow, "late")
    first.commit(manifest(0, 1))
    second = StateStore(server().location("late"))
    # Its put has left when the next service comes, and arrives when that one has committed.
    done = threading.Event()
    fault = slow.spoil("delay", method="PUT", path="/manifests/", seconds=15, until=done)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(first.commit, manifest(1, 1))
        while not fault.hits:
            time.sleep(0.01)
        second.open().open_operator("op", {}, KEYSPACE)
        second.commit(manifest(1, 2))
        assert not late.done()
        done.set()
        with pytest.raises(LocationInUse, match="taken over"):
            late.result()
    second.commit(manifest(2, 2))
    third = opened(server(), "late")
    assert third.epochs("op") == [0, 1, 2]
    assert [third.manifest("op", epoch).committed_at for epoch in (0, 1, 2)] == [1, 2, 2]


def test_the_last_execution_of_an_epoch_counts() -> None:
    store = opened(server(), "again")
    for writer in range(12):
        store.commit(manifest(0, writer))
    fresh = opened(server(), "again")
    assert fresh.manifest("op", 0).committed_at == 11
    fresh.commit(manifest(0, 99))
    assert opened(server(), "again").manifest("op", 0).committed_at == 99


def test_services_that_start_at_once_end_up_as_one() -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: StateStore(server().location("rush")).open(), range(4)))
    owners = []
    for store in stores:
        try:
            store.check_fence()
            owners.append(store)
        except LocationInUse:
            pass
    assert len(owners) == 1


def test_claims_and_old_manifests_are_tidied_up() -> None:
    for _ in range(4):
        store = opened(server(), "tidy")
    for epoch in range(6):
        store.commit(manifest(epoch, 1))
        store.commit(manifest(epoch, 2))
    store.collect_garbage("op", retain=2)
    objects = server().request("GET", "/states?list-type=2&prefix=tidy/").decode()
    assert objects.count("<Key>tidy/lock~") == 1
    assert objects.count("<Key>tidy/fence.json~") <= 2
    assert objects.count("/manifests/0") == 4
    assert store.epochs("op") == [4, 5]
    assert store.blobs.entries() == ["fence.json", "format.json", "lock", "operators"]
