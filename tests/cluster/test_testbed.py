"""The cluster for tests does what it says: cuts are cuts, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.leftovers import left_on
from tests.cluster.namespaces import need_namespaces

from anabranch_bench.testbed.hosts import Host
from anabranch_bench.testbed.loopback import LoopbackHost
from anabranch_bench.testbed.namespaces import Network

SECONDS = 10.0
ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
while True:
    peer, _ = server.accept()
    peer.sendall(peer.recv(100))
    peer.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), timeout=1) as peer:
    peer.sendall(b"hello")
    assert peer.recv(100) == b"hello"
"""


def reaches(source: Host, target: str) -> bool:
    words = [sys.executable, "-c", ASK, target]
    return source.start(words, Path(os.devnull)).wait(SECONDS) == 0


def become(is_so: Callable[[], bool]) -> bool:
    limit = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


LEAVE = """
import socket, sys, tempfile
server = socket.create_server((sys.argv[2], 0))
tempfile.mkdtemp(prefix="anabranch-scratch-")
server.accept()
"""


def test_what_is_left_on_a_host_is_found(tmp_path: Path) -> None:
    """A process, its port, a folder."""
    host = LoopbackHost("h1", "127.0.0.2", tmp_path)
    try:
        assert left_on(host) == []
        host.start(
            [sys.executable, "-c", LEAVE, "anabranch worker", host.address], tmp_path / "log"
        )
        assert become(lambda: len(left_on(host)) == 4)  # with its leash
        assert {found.split()[0] for found in left_on(host)} == {"process", "port", "folder"}
        host.kill("anabranch worker")
        assert become(lambda: [found.split()[0] for found in left_on(host)] == ["folder"])
    finally:
        host.close()


@pytest.mark.netns
def test_cables_between_hosts(network: Network, tmp_path: Path) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    for host in (h1, h2):
        host.start([sys.executable, "-c", ECHO], tmp_path / "echo.log")
    assert become(lambda: reaches(h1, "h2") and reaches(h2, "h1"))
    network.cut("h1")
    assert not reaches(h1, "h2")
    assert not reaches(h2, "h1")
    network.heal("h1")
    assert become(lambda: reaches(h1, "h2"))
    # Nothing comes in: an answer neither, so nobody can connect; a third host does not notice.
    network.cut("h1", "in")
    assert not reaches(h1, "h2")
    assert reaches(network.hosts["h3"], "h2")
    network.heal("h1")
    network.wall("h1", "h2", 7000)
    assert not reaches(h1, "h2")
    assert reaches(h2, "h1")
    assert reaches(network.hosts["h3"], "h2")
    assert network.walled() > 0
    network.heal("h1")
    network.delay("h1", 0.3)
    started = time.monotonic()
    assert become(lambda: reaches(h1, "h2"))
    assert time.monotonic() - started > 0.6  # the handshake and the question


@pytest.mark.netns
def test_hosts_hang_fill_up_and_lose_power(network: Network, tmp_path: Path) -> None:
    h2, h3 = network.hosts["h2"], network.hosts["h3"]
    h2.start([sys.executable, "-c", ECHO], tmp_path / "echo.log")
    assert become(lambda: reaches(h3, "h2"))
    h2.hang()
    assert not reaches(h3, "h2")
    h2.go_on()
    assert become(lambda: reaches(h3, "h2"))
    save = [sys.executable, "-c", "open('more', 'wb').write(bytes(1 << 20))"]
    writer = ["sh", "-c", f'cd "$TMPDIR" && {save[0]} -c "{save[2]}"']
    h3.fill_disk()
    assert h3.free_bytes() == 0
    assert h3.start(writer, Path(os.devnull)).wait(SECONDS) != 0
    h3.free_disk()
    assert h3.start(writer, Path(os.devnull)).wait(SECONDS) == 0
    assert len(h2.find(sys.executable, "server.accept")) == 1
    h2.power_off()
    assert become(lambda: not h2.processes())


MAKER = """
import sys
from pathlib import Path
from tests.cluster.test_testbed import make
host = make(sys.argv[1], Path(sys.argv[2]))
for _ in range(2):
    host.start(["sh", "-c", "sleep 1000 & sleep 1001"], Path(sys.argv[2]) / "log")
while len(host.processes()) < 6:
    pass
print(*host.processes(), flush=True)
sys.stdin.read()
"""


def make(kind: str, folder: Path) -> Host:
    if kind == "loopback":
        return LoopbackHost("h1", "127.0.0.2", folder)
    return Network(["h1"], folder).__enter__().hosts["h1"]


@pytest.mark.parametrize("kind", ["loopback", pytest.param("netns", marks=pytest.mark.netns)])
def test_hosts_end_with_who_made_them(kind: str, tmp_path: Path) -> None:
    """Also after kill -9: no process, no device."""
    if kind == "netns":
        need_namespaces()
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, kind, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert maker.stdout is not None
    pids = [int(pid) for pid in maker.stdout.readline().split()]
    assert len(pids) >= 6
    maker.kill()
    maker.communicate(timeout=SECONDS)
    assert become(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    devices = f"ab{maker.pid}_"
    assert become(lambda: devices not in Path("/proc/net/dev").read_text())
