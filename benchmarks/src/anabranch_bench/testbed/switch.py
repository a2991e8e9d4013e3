"""A network switch in user space for hosts in namespaces: cuts, delay and loss, without the kernel.

`python -m anabranch_bench.testbed.switch h1=TAP1 h2=TAP2 ...` makes a TAP device for each port and
passes frames on between them. Whoever started it moves the devices into namespaces. It takes orders
as lines on standard input, and answers each with "ok":

    cut h1           nothing comes in or out;       cut h1 in, cut h1 out: one direction
    wall h1 h2 4000  no TCP from h1 to this port of h2, as behind a firewall, nor back
    walled           answers how many frames walls have stopped
    heal h1          as in the beginning, without its walls
    delay h1 0.3     seconds for each frame that leaves h1
    loss h1 0.05     share of the frames that leave h1 and get lost

The devices end with the process, and the process with its standard input: nothing is left behind.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import sys
import time
from dataclasses import dataclass

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES_MAX = 65_550
IPV4, TCP = b"\x08\x00", 6
FRAMES_A_TURN = 64
"""Frames of one port before the others have their turn."""
WAITING_MAX = 20_000
"""Frames under way; more are lost, as in a switch whose queues are full."""


@dataclass(slots=True)
class Port:
    """A host's end of its cable."""

    name: str
    fd: int
    lets_in: bool = True
    lets_out: bool = True
    delay_seconds: float = 0.0
    loss: float = 0.0

    def heal(self) -> None:
        """As in the beginning."""
        self.lets_in = self.lets_out = True
        self.delay_seconds = self.loss = 0.0


class Switch:
    """Passes frames on between ports."""

    def __init__(self, ports: list[Port], seed: int = 0) -> None:
        self._ports = {port.name: port for port in ports}
        self._homes: dict[bytes, Port] = {}
        """Where an address was seen last."""
        self._waiting: list[tuple[float, int, Port, bytes]] = []
        self._numbers = itertools.count()
        self._chance = random.Random(seed)
        self._walls: set[tuple[str, str, int]] = set()
        """Who does not get through, to whom, to which of its ports."""
        self._walled = 0

    def order(self, line: str) -> str:
        """Carry out one line of standard input."""
        word, *rest = line.split()
        if word == "walled":
            return f"ok {self._walled}"
        name, *rest = rest
        port = self._ports[name]
        match word:
            case "wall":
                self._walls.add((name, rest[0], int(rest[1])))
            case "cut":
                port.lets_in = port.lets_in and rest == ["out"]
                port.lets_out = port.lets_out and rest == ["in"]
            case "heal":
                port.heal()
                self._walls = {wall for wall in self._walls if name not in wall[:2]}
            case "delay":
                port.delay_seconds = float(rest[0])
            case "loss":
                port.loss = float(rest[0])
            case _:
                return f"unknown order: {line}"
        return "ok"

    def read(self, port: Port) -> None:
        """Take frames that a host has sent."""
        for _ in range(FRAMES_A_TURN):
            try:
                frame = os.read(port.fd, FRAME_BYTES_MAX)
            except (BlockingIOError, OSError):  # no more, or the device is down
                return
            if not port.lets_out or (port.loss and self._chance.random() < port.loss):
                continue
            self._homes[frame[6:12]] = port
            home = self._homes.get(frame[:6])
            others = [each for each in self._ports.values() if each is not port]
            for target in others if home is None else [home]:
                self._pass(port, target, frame)

    def _pass(self, source: Port, target: Port, frame: bytes) -> None:
        if self._walls and self._is_walled(source.name, target.name, frame):
            self._walled += 1
        elif source.delay_seconds == 0.0:
            self._write(target, frame)
        elif len(self._waiting) < WAITING_MAX:
            due = time.monotonic() + source.delay_seconds
            heapq.heappush(self._waiting, (due, next(self._numbers), target, frame))

    def _is_walled(self, source: str, target: str, frame: bytes) -> bool:
        ports = tcp_ports(frame)
        if ports is None:
            return False
        there, back = (source, target, ports[1]), (target, source, ports[0])
        return there in self._walls or back in self._walls

    def flush(self) -> float | None:
        """Pass on what is due; seconds until the next frame is, None: there is none."""
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(self._waiting)
            self._write(target, frame)
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None

    @staticmethod
    def _write(target: Port, frame: bytes) -> None:
        if target.lets_in:
            try:
                os.write(target.fd, frame)
            except OSError:  # its queue is full, or the host is down: lost
                return


def tcp_ports(frame: bytes) -> tuple[int, int] | None:
    """From which port to which one, if it is TCP over IPv4."""
    if frame[12:14] != IPV4 or frame[23] != TCP:
        return None
    words_of_header = frame[14] & 0x0F
    source, target = struct.unpack_from("!HH", frame, 14 + 4 * words_of_header)
    return source, target


def open_port(name: str, device: str) -> Port:
    """Make a TAP device, in the namespace of this process."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TAP | IFF_NO_PI))
    return Port(name, fd)


def main() -> None:
    """Until standard input ends."""
    ports = [open_port(*argument.split("=")) for argument in sys.argv[1:]]
    switch = Switch(ports)
    selector = selectors.DefaultSelector()
    for port in ports:
        selector.register(port.fd, selectors.EVENT_READ, port)
    selector.register(0, selectors.EVENT_READ, None)
    sys.stdout.write("ok\n")
    sys.stdout.flush()
    pending = b""
    while True:
        for key, _ in selector.select(switch.flush()):
            if key.data is not None:
                switch.read(key.data)
                continue
            told = os.read(0, 4096)
            if not told:
                return
            *lines, pending = (pending + told).split(b"\n")
            for line in lines:
                sys.stdout.write(switch.order(line.decode()) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
