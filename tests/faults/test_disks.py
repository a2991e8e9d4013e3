"""Disk full, permission lost: the batch fails with a clear error, and goes on once it is mended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tests.faults.disks import Disk, forbidden, small_disk
from tests.integration.harness import QUERY, Cluster, Oracle
from tests.unit.processor.rows.support import define

from anabranch.durability.blobs import BlobStore
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError, LocationError, LocationNotWritable

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KEYS = [list(range(n, 300 + n)) * 2 for n in range(9)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


def temporary_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.tmp")]


@pytest.mark.timeout(120)
def test_a_full_disk_fails_the_batch_and_loses_nothing(disk: Disk) -> None:
    oracle, location = Oracle(), disk.folder / "state"
    with Cluster(location) as cluster:
        assert cluster.run_batch(0, KEYS[0]) == oracle.run_batch(KEYS[0])
        disk.fill()
        for _ in range(2):
            with pytest.raises(LocationNotWritable) as caught:
                cluster.run_batch(1, KEYS[1])
            assert "No space left" in str(caught.value)
            assert "Free or add space" in str(caught.value)
            assert "Nothing is lost" in str(caught.value)
            assert str(location) in str(caught.value)
        assert temporary_files(location) == []
        assert cluster.store.latest_epoch("counts") == 0
        disk.free()
        # The same service goes on, and so does its replacement for a worker.
        assert cluster.run_batch(1, KEYS[1]) == oracle.run_batch(KEYS[1])
        os.kill(min(cluster.coordinator.pids().values()), signal.SIGKILL)
        assert cluster.run_batch(2, KEYS[2]) == oracle.run_batch(KEYS[2])
        disk.fill()
    with pytest.raises(LocationNotWritable, match="No space left"):
        Cluster(location)
    disk.free()
    with Cluster(location) as cluster:
        assert cluster.run_batch(3, KEYS[3]) == oracle.run_batch(KEYS[3])


@pytest.mark.timeout(120)
def test_a_disk_that_is_full_from_the_first_batch_on(disk: Disk) -> None:
    oracle, location = Oracle(), disk.folder / "state"
    with Cluster(location) as cluster:
        disk.fill()
        with pytest.raises(LocationNotWritable, match="No space left"):
            cluster.run_batch(0, KEYS[0])
        disk.free()
        assert cluster.run_batch(0, KEYS[0]) == oracle.run_batch(KEYS[0])
    # The state is bound to its query all the same.
    with StateStore(location) as store:
        assert store.operator("counts").query_id == QUERY


def test_a_full_disk_keeps_the_older_file(disk: Disk) -> None:
    store = BlobStore(disk.folder / "store")
    store.write("manifest", b"before")
    disk.fill()
    for size in (1, 5000, 2_000_000):
        with pytest.raises(LocationNotWritable, match="No space left"):
            store.write("manifest", b"x" * size)
        with pytest.raises(LocationNotWritable, match="No space left"):
            store.create_exclusive("new", b"x" * size)
    assert store.read("manifest").to_pybytes() == b"before"
    assert store.list() == ["manifest"]
    assert store.list(temporary=True) == []


@pytest.mark.timeout(120)
def test_a_full_disk_for_rows_that_do_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, few = [key % 100 for key in range(1_500_000)], KEYS[1]
    oracle = Oracle()
    with small_disk(tmp_path / "disk", "64m") as disk:
        monkeypatch.setenv("TMPDIR", str(disk.folder))
        with Cluster(tmp_path / "state", workers=1, memory_bytes=1 << 16) as cluster:
            assert cluster.run_batch(0, many, lanes=1) == oracle.run_batch(many)
            disk.fill()
            with pytest.raises(AnabranchError) as caught:
                cluster.run_batch(1, many, lanes=1)
            assert "No space left" in str(caught.value)
            assert "TMPDIR" in str(caught.value)
            assert str(disk.folder) in str(caught.value)
            disk.free()
            assert cluster.run_batch(1, few) == oracle.run_batch(few)


class Padded(StatefulProcessor):
    """Counts, with much beside it that cannot be compressed."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("state", "n long, padding string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        stored = self.state.get()
        total = (stored[0] if stored else 0) + sum(1 for _ in rows)
        self.state.update((total, os.urandom(8000).hex()))
        yield Row(k=key[0], n=total)


def run_batches(cluster: Cluster, oracle: Oracle, keys: Iterable[int]) -> None:
    for epoch in range(1, 9):
        assert cluster.run_batch(epoch, keys) == oracle.run_batch(keys)


@pytest.mark.timeout(120)
def test_a_full_disk_under_rocksdb(tmp_path: Path) -> None:
    padded = define(Padded(), "k long", ["k"], "k long, n long")
    oracle, keys = Oracle(), range(300)
    with small_disk(tmp_path / "disk", "48m") as disk:
        local = disk.folder / "local"
        settings: dict[str, Any] = {
            "backend": "rocksdb",
            "local_dir": str(local),
            "state_memory_bytes": 1 << 20,
        }
        (disk.folder / "local").touch()  # a file, where a folder is needed
        with Cluster(tmp_path / "state", 1, padded, fsync=False, **settings) as cluster:
            with pytest.raises(LocationNotWritable, match="local_dir"):
                cluster.run_batch(0, keys)
            local.unlink()
            assert cluster.run_batch(0, keys) == oracle.run_batch(keys)
            disk.fill()
            with pytest.raises(LocationNotWritable) as caught:  # once buffers are full
                run_batches(cluster, oracle, keys)
            assert "No space left" in str(caught.value)
            assert str(local) in str(caught.value)
            assert "nothing is lost" in str(caught.value)
            disk.free()
            epoch = 1 + (cluster.store.latest_epoch("counts") or 0)
            expected, deadline = oracle.run_batch(keys), time.monotonic() + 60
            while True:  # RocksDB looks every few seconds
                try:
                    assert cluster.run_batch(epoch, keys) == expected
                    break
                except LocationNotWritable:
                    assert time.monotonic() < deadline
                    time.sleep(0.5)


LIMITED = """
import resource, sys
from anabranch.durability.blobs import BlobStore
store = BlobStore(sys.argv[1])
store.write("f", b"before")
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    store.write("f", [b"x" * 50000, b"y" * 50000])
except Exception as error:
    print(type(error).__name__, error)
print(store.read("f").to_pybytes(), store.list(), store.list(temporary=True))
"""


def test_a_file_that_grows_beyond_a_limit_leaves_the_older_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("LocationNotWritable")
    assert "File too large" in done.stdout
    assert done.stdout.endswith("b'before' ['f'] []\n")


@pytest.mark.timeout(120)
def test_permission_that_is_lost_and_given_back(tmp_path: Path) -> None:
    oracle, location = Oracle(), tmp_path / "state"
    with Cluster(location) as cluster:
        assert cluster.run_batch(0, KEYS[0]) == oracle.run_batch(KEYS[0])
        first = cluster.store.manifest("counts", 0)
        with forbidden(location / "operators"):
            for write in (
                lambda: cluster.run_batch(1, KEYS[1]),
                lambda: cluster.store.commit(first),
            ):
                with pytest.raises(LocationNotWritable) as caught:
                    write()
                assert "right to read and write" in str(caught.value)
                assert "Nothing is lost" in str(caught.value)
        assert cluster.run_batch(1, KEYS[1]) == oracle.run_batch(KEYS[1])
    with forbidden(location), pytest.raises(LocationNotWritable, match="right to read and write"):
        StateStore(location).open()
    with Cluster(location) as cluster:
        assert cluster.run_batch(2, KEYS[2]) == oracle.run_batch(KEYS[2])


FORBIDDEN = """
import os, sys
from anabranch.durability.store import StateStore
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    StateStore(sys.argv[1]).open()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_location_of_another_user(tmp_path: Path) -> None:
    """In a process that is not root: nothing is forbidden to root."""
    location = tmp_path / "state"
    StateStore(location).open().close()
    try:
        for mode, told in ((0o500, "Permission denied"), (0o000, "Permission denied")):
            # As another user than the owner, or as the owner without rights.
            location.chmod(mode)
            done = subprocess.run(
                [sys.executable, "-c", FORBIDDEN, str(location)], capture_output=True, text=True
            )
            kind, _, message = done.stdout.partition(" ")
            assert kind in ("LocationError", "LocationNotWritable"), done.stdout + done.stderr
            assert told in message
            assert "right to read and write" in message
    finally:
        location.chmod(0o700)


def test_errors_of_reading_are_no_corruption(disk: Disk) -> None:
    """A store that cannot be read is not taken for one that has lost its files."""
    (disk.folder / "store").mkdir()
    store = BlobStore(disk.folder / "store")
    (disk.folder / "store" / "loop").symlink_to("loop")
    with pytest.raises(LocationError, match="Too many levels") as caught:
        store.read("loop")
    assert type(caught.value) is LocationError
