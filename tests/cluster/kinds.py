"""Kinds of state across hosts: out and in, a host that is lost, the reader, a savepoint."""

from __future__ import annotations

import time
from typing import Any

from tests.cluster.scene import AFTER_TIMEOUT, HOST_TIMEOUT, LOOKS, Scene

OF_STATE: tuple[dict[str, Any], ...] = (
    {"backend": "rocksdb", "state_memory_bytes": 64 << 20},
    {"state": "hybrid", "state_memory_bytes": 32 << 20, "letters": 50_000},
    {"checkpoint": "unaligned"},
    {"state": "remote"},
    {"checkpoint": "full"},
    {"checkpoint": "independent", "snapshot_seconds": 5},
)
LATE = ("unaligned", "independent")
"""Stored rows wait under these, and the reader refuses to guess."""


def name_of(options: dict[str, Any]) -> str:
    """For the test's name."""
    return "-".join(map(str, options.values()))


def check(scene: Scene, options: dict[str, Any], carrier: str) -> None:
    """`carrier` is part of the command line of what a host's agent ends with."""
    assert scene.rescale(5)["outcome"] == "done"
    scene.check()
    savepoint = scene.driver.call(f"{LOOKS}:savepoint", "across")
    start = time.time()
    assert scene.network.hosts["h1"].kill(carrier)
    scene.batches_go_on(start, HOST_TIMEOUT + AFTER_TIMEOUT)
    assert scene.rescale(1)["outcome"] == "done"
    scene.check()
    _check_where_state_is(scene, options)
    if options.get("checkpoint") not in LATE:
        assert scene.driver.call(f"{LOOKS}:wrong_rows") == []
    scene.go_on_from(savepoint)
    scene.check()


def _check_where_state_is(scene: Scene, options: dict[str, Any]) -> None:
    """It is kept as was asked for: one worker has all of it in the end."""
    if options.get("backend") == "rocksdb":
        for host in set(scene.hosts_of_workers().values()):
            disk = scene.network.hosts[host].seen_disk()
            assert list(disk.rglob("MANIFEST-*")), f"RocksDB has no files on {host}."
    if options.get("state") in ("hybrid", "remote"):
        in_memory = scene.status()["operators"]["chain"]["in_memory"]
        scene.say(f"{in_memory:.0%} of the chain's state is in memory")
        assert in_memory < 1, "Nothing was evicted."
