"""What is left when a service ends, however it ends; and what damaged files say."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.integration.harness import Cluster

from anabranch.errors import CorruptState, LocationInUse

ROOT = Path(__file__).parents[2]

DRIVER = """
import signal, socket, sys, threading, time
from pathlib import Path
from tests.integration.counting import Hanging
from tests.integration.harness import Cluster

# Tests that run in the background of a shell ignore SIGINT, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Cluster(Path(sys.argv[1]), definition=Hanging()) as cluster:
    cluster.run_batch(0, [1, 2, 3])
    if sys.argv[2] == "hanging":
        threading.Thread(target=cluster.run_batch, args=(1, [1]), daemon=True).start()
        time.sleep(1)
    # As a driver waits for its query: nothing but a signal ends it. One that comes just before
    # `recv` would only be marked by Python, and nothing would wake it: hence the byte.
    left, right = socket.socketpair()
    right.setblocking(False)
    signal.set_wakeup_fd(right.fileno())
    print(*cluster.coordinator.pids().values(), flush=True)
    while left.recv(1):
        pass
"""


def is_open(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, int(port))) == 0


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "workers outlived their driver"
        time.sleep(0.1)


OF_LANES = ("anabranch-watch", "anabranch-in-flight", "anabranch-probe")
"""Threads of a process that runs lanes, as this one does here; they end when none has run for a
minute."""


def test_stop_leaves_no_process_port_or_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Cluster(tmp_path) as cluster:
        cluster.run_batch(0, range(100))
        pids = cluster.coordinator.pids()
        address = cluster.coordinator.address
        for worker, pid in pids.items():
            assert Path(f"/proc/{pid}/comm").read_text().strip() == f"anabranch-{worker}"
            command = Path(f"/proc/{pid}/cmdline").read_text()
            assert command.strip("\0").split("\0") == ["anabranch", "worker", worker]
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert cluster.coordinator.access.credentials.token not in command
            assert cluster.coordinator.access.credentials.token.encode() not in environment
        assert is_open(address)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert not is_open(address)
    after = [t for t in threading.enumerate() if t not in before and t.name.startswith("anabranch")]
    assert [thread for thread in after if thread.name not in OF_LANES] == []


@pytest.mark.parametrize("doing", ["waiting", "hanging"])
@pytest.mark.parametrize(
    "ending",
    [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)],
)
def test_workers_end_with_their_driver(tmp_path: Path, ending: signal.Signals, doing: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), doing],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert driver.stdout is not None
    with driver.stdout:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    os.killpg(driver.pid, ending)  # as a terminal does on Ctrl-C
    try:
        driver.wait(20)
    finally:
        driver.kill()
    wait_until_gone(pids)
    with Cluster(tmp_path) as cluster:  # the location is free again
        assert cluster.run_batch(1, [1, 1]) == {1: 3}


def test_second_service_is_kept_out(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        with pytest.raises(LocationInUse, match=str(os.getpid())):
            Cluster(tmp_path)
        assert cluster.run_batch(0, [5]) == {5: 1}


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("changelog", "truncate"),
        ("changelog", "flip"),
        ("changelog", "remove"),
        ("manifests", "truncate"),
        ("manifests", "flip"),  # without its manifest an epoch does not exist
    ],
)
def test_damaged_files_are_named_and_nothing_is_overwritten(
    tmp_path: Path, kind: str, damage: str
) -> None:
    with Cluster(tmp_path) as cluster:
        for epoch in range(3):
            cluster.run_batch(epoch, range(50))
    # The file of the last epoch that epoch 3 is built on.
    victim = sorted((tmp_path / "operators" / "counts" / kind).iterdir())[-1]
    content = bytearray(victim.read_bytes())
    if damage == "truncate":
        victim.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[len(content) // 2] ^= 0xFF
        victim.write_bytes(content)
    else:
        victim.unlink()
    before = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    with Cluster(tmp_path) as cluster, pytest.raises(CorruptState, match=victim.name):
        cluster.run_batch(3, range(50))
    after = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert set(before) <= set(after)
    assert not list(tmp_path.rglob("*3.json"))
