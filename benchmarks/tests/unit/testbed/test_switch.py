"""The switch by itself: sockets of this process are the hosts."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from anabranch_bench.testbed.switch import Port, Switch, tcp_ports

NAMES = ("h1", "h2", "h3")


class Bench:
    """Hosts that send and receive frames."""

    def __init__(self) -> None:
        pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for name in NAMES}
        self.hosts = {name: pair[0] for name, pair in pairs.items()}
        self._ends = {name: pair[1] for name, pair in pairs.items()}
        for each in (*self.hosts.values(), *self._ends.values()):
            each.setblocking(False)
        self._ports = {name: Port(name, end.fileno()) for name, end in self._ends.items()}
        self.switch = Switch(list(self._ports.values()))
        for name in NAMES:  # the switch learns where they are
            self.arrives(frame(name, "h1", 1, 1), name)

    def close(self) -> None:
        for each in (*self.hosts.values(), *self._ends.values()):
            each.close()

    def arrives(self, sent: bytes, source: str) -> set[str]:
        """Who gets it."""
        self.hosts[source].send(sent)
        self.switch.read(self._ports[source])
        found = set()
        for name, host in self.hosts.items():
            try:
                assert host.recv(1 << 16) == sent
                found.add(name)
            except BlockingIOError:
                continue
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def frame(source: str, target: str, source_port: int, target_port: int, options: int = 0) -> bytes:
    """TCP over IPv4, with so many words of options in its header."""
    addresses = b"".join(name.encode().rjust(6, b"\0") for name in (target, source))
    header = bytes([0x45 + options]) + bytes(8) + bytes([6]) + bytes(10 + 4 * options)
    return addresses + b"\x08\x00" + header + struct.pack("!HH", source_port, target_port)


def test_ports_of_a_frame() -> None:
    assert tcp_ports(frame("h1", "h2", 4000, 77)) == (4000, 77)
    assert tcp_ports(frame("h1", "h2", 4000, 77, options=3)) == (4000, 77)
    assert tcp_ports(b"\0" * 12 + b"\x08\x06" + bytes(28)) is None  # ARP
    assert tcp_ports(frame("h1", "h2", 4000, 77).replace(bytes([6]), bytes([17]))) is None  # UDP


def test_a_wall_stops_one_port_both_ways(bench: Bench) -> None:
    assert bench.switch.order("wall h1 h2 77") == "ok"
    assert bench.arrives(frame("h1", "h2", 4000, 77), "h1") == set()
    assert bench.arrives(frame("h2", "h1", 77, 4000), "h2") == set()
    assert bench.switch.order("walled") == "ok 2"
    assert bench.arrives(frame("h1", "h2", 4000, 78), "h1") == {"h2"}
    assert bench.arrives(frame("h2", "h1", 4000, 77), "h2") == {"h1"}
    assert bench.arrives(frame("h3", "h2", 4000, 77), "h3") == {"h2"}
    assert bench.switch.order("heal h2") == "ok"
    assert bench.arrives(frame("h1", "h2", 4000, 77), "h1") == {"h2"}


@pytest.mark.parametrize("direction", ["", "in", "out"])
def test_a_cut_host(bench: Bench, direction: str) -> None:
    assert bench.switch.order(f"cut h1 {direction}") == "ok"
    goes_out = bench.arrives(frame("h1", "h2", 1, 2), "h1") == {"h2"}
    comes_in = bench.arrives(frame("h2", "h1", 2, 1), "h2") == {"h1"}
    assert (goes_out, comes_in) == (direction == "in", direction == "out")
    assert bench.switch.order("heal h1") == "ok"
    assert bench.arrives(frame("h2", "h1", 2, 1), "h2") == {"h1"}
