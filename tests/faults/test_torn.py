"""Files that are cut short or damaged, by a disk or by hand, under a real coordinator and workers.

That every cut and every flipped byte of every kind of file is noticed: tests/unit/durability.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.harness import Cluster, Oracle
from tests.integration.streaming import MovingCluster

from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.documents import unseal
from anabranch.durability.manifest import FileRef, Manifest, next_manifest
from anabranch.durability.names import manifest_path
from anabranch.durability.store import StateStore
from anabranch.errors import CorruptState, LocationInUse
from anabranch.model.keyspace import KeySpace

LAST = 4
KEYS = [list(range(n, 200 + n)) * 2 for n in range(LAST + 2)]


def outputs(epoch: int) -> dict[int, int]:
    oracle = Oracle()
    return [oracle.run_batch(keys) for keys in KEYS[: epoch + 1]][-1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A location with changelogs, snapshots and manifests."""
    location = tmp_path_factory.mktemp("torn") / "state"
    with MovingCluster(location) as cluster:
        for epoch in range(LAST - 1):
            assert cluster.run_batch(epoch, KEYS[epoch]) == outputs(epoch)
        assert cluster.rescale(3, strategy="stop-restart").wait(60)
        for epoch in (LAST - 1, LAST):
            assert cluster.run_batch(epoch, KEYS[epoch]) == outputs(epoch)
    return location


@pytest.fixture
def location(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "state"))


def damages(content: bytes) -> Iterator[bytes]:
    middle = len(content) // 2
    for kept in (0, 1, middle, len(content) - 1):
        yield content[:kept]
    yield content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    yield bytes(len(content))


def newest(location: Path, pattern: str) -> Path:
    return max(location.rglob(pattern))


@pytest.mark.timeout(120)
def test_a_damaged_file_is_named_and_may_be_put_back(location: Path) -> None:
    with Cluster(location) as cluster:
        for pattern in ("*.changelog", "*.snapshot", f"manifests/*{LAST}.json"):
            path = newest(location, pattern)
            whole = path.read_bytes()
            for damaged in damages(whole):
                path.write_bytes(damaged)
                with pytest.raises(CorruptState) as caught:
                    cluster.run_batch(LAST + 1, KEYS[LAST + 1])
                assert str(path) in str(caught.value)
                assert "backup" in str(caught.value)
            path.unlink()
            with pytest.raises(CorruptState, match="missing") as caught:
                cluster.run_batch(LAST + 1, KEYS[LAST + 1])
            assert str(path) in str(caught.value)
            path.write_bytes(whole)
        assert cluster.store.epochs("counts")[-1] == LAST
        assert cluster.run_batch(LAST + 1, KEYS[LAST + 1]) == outputs(LAST + 1)


@pytest.mark.parametrize("name", ["format.json", "operator.json"])
def test_damaged_descriptions_are_named_before_anything_starts(location: Path, name: str) -> None:
    path = newest(location, name)
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        store = StateStore(location)
        with pytest.raises(CorruptState) as caught:
            store.open().open_operator("counts", {}, KeySpace(32, 4))
        assert str(path) in str(caught.value)
        store.close()


@pytest.mark.parametrize("name", ["fence.json", "lock"])
def test_a_torn_fence_or_lock_locks_nobody_out(location: Path, name: str) -> None:
    (location / name).write_bytes(b'{"crc32":"00')
    with StateStore(location) as store:
        store.check_fence()
        assert store.epochs("counts")[-1] == LAST
        # Both are whole again: they keep others out, and say who is in.
        fence = unseal((location / "fence.json").read_bytes(), "fence.json")
        note = json.loads((location / "lock").read_bytes())
        assert fence == note
        assert fence["pid"] == os.getpid()
        with pytest.raises(LocationInUse, match=f"process {os.getpid()} on"):
            StateStore(location).open()


@pytest.mark.timeout(120)
def test_a_batch_whose_manifest_was_torn_runs_again(location: Path) -> None:
    """Spark commits a batch after its manifest: one that was never complete is not missed."""
    newest(location, f"manifests/*{LAST}.json").write_bytes(b'{"crc32":"0123')
    # And what a crash leaves behind on the way to the next one.
    (location / "operators/counts/manifests" / f"{LAST + 1:020d}.json.0a1b2c.tmp").write_bytes(b"{")
    with Cluster(location) as cluster:
        assert cluster.store.epochs("counts")[-1] == LAST
        assert cluster.run_batch(LAST, KEYS[LAST]) == outputs(LAST)
        assert cluster.run_batch(LAST + 1, KEYS[LAST + 1]) == outputs(LAST + 1)


def manifests(count: int) -> list[Manifest]:
    """Each lists a changelog for every epoch up to its own."""
    made: list[Manifest] = []
    for epoch in range(count):
        path = f"operators/op/changelog/{epoch:020d}-a.changelog"
        made.append(
            next_manifest(
                made[-1] if made else None,
                epoch,
                [FileRef(path, epoch, 10, 1, (0, 1))],
                operator="op",
                query_id=None,
                keyspace=KeySpace(2, 2),
                description={},
                committed_at=epoch,
            )
        )
    return made


@pytest.mark.parametrize("tear", [lambda content: b"", lambda content: content[:-9]])
def test_a_torn_manifest_is_replaced_also_after_garbage_collection(
    tear: Callable[[bytes], bytes],
) -> None:
    blobs = MemoryBlobStore()
    with StateStore(blobs) as store:
        store.open_operator("op", {}, KeySpace(2, 2))
        for manifest in manifests(20):
            store.commit(manifest)
        store.collect_garbage("op", retain=5)
    path = manifest_path("op", 19)
    blobs.files[path] = tear(blobs.files[path])
    with StateStore(blobs.twin()) as store:
        with pytest.raises(CorruptState):
            store.manifest("op", 19)
        store.commit(manifests(20)[-1])
        assert store.manifest("op", 19).epoch == 19
