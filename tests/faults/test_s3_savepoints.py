"""Savepoints on S3: made, restored, copied and read over HTTP, while some requests fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.faults.s3 import Proxy, proxy
from tests.integration.harness import KEYSPACE, Cluster
from tests.integration.operators import make_case

from anabranch.durability.savepoint import Savepoint, create_savepoint
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.spark.state_reader import StateReader, StateSelection

CASE = make_case("everything")


@pytest.fixture
def spoiled() -> Iterator[Proxy]:
    with proxy() as running:
        yield running


def outputs(cluster: Cluster, epoch: int) -> list[str]:
    (rows,) = CASE.rows(epoch).to_batches()
    return sorted(map(repr, cluster.run_lanes(epoch, 2, rows)))


def restored(location: str, savepoint: str) -> None:
    with StateStore(location).open() as store:
        restore_savepoint(store, savepoint, KEYSPACE)


def entries(location: str, epoch: int) -> list[str]:
    """Everything of two state variables."""
    found: list[pa.Table] = []
    for variable in ("values", "recent"):
        reader = StateReader(location, StateSelection("counts", variable, epoch))
        for groups in reader.partitions():
            found += reader.read(groups)
    return sorted(repr(row) for table in found for row in table.to_pylist())


def files_read(place: Proxy, since: int) -> list[str]:
    return [seen for seen in place.seen[since:] if "GET" in seen and ".changelog" in seen]


@pytest.mark.timeout(120)
def test_saved_restored_copied_and_read(spoiled: Proxy, tmp_path: Path) -> None:
    location, second, third = (spoiled.location() for _ in range(3))
    with Cluster(location, workers=1, definition=CASE.definition) as cluster:
        outputs(cluster, 0)
        outputs(cluster, 1)
        since = len(spoiled.seen)
        failed = spoiled.spoil("status", method="PUT", times=2)
        lost = spoiled.spoil("lose", method="PUT", times=2)
        savepoint = create_savepoint(cluster.store, cluster.coordinator.store_lock, "first")
        expected = outputs(cluster, 2)
    assert (failed.hits, lost.hits) == (2, 2)
    assert "secret" not in repr(savepoint)
    # The path alone will do: it is reached with the options of the new location.
    restored(second, savepoint.path)
    # So far the store has copied by itself.
    assert not files_read(spoiled, since)
    with Cluster(second, workers=2, definition=CASE.definition) as cluster:
        assert outputs(cluster, 2) == expected
    # By way of a folder everything is read and written.
    since = len(spoiled.seen)
    copy = savepoint.copy(str(tmp_path / "copy"))
    assert files_read(spoiled, since)
    assert Savepoint.open(savepoint.folder.blobs.beside(savepoint.path).address).id == copy.id
    restored(third, copy.path)
    with StateStore(third).open() as store:
        origin = store.before("counts", None)
        assert origin is not None
        store.verify(origin)
    assert entries(copy.path, 1) == entries(location, 1)
    known = entries(location, 2)
    assert len(known) > 100
    assert entries(second, 2) == known
