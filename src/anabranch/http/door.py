"""Lets connections in at a bounded pace, and those that say nothing out again.

Whoever connects as fast as he can would otherwise take the driver's CPU from its queries. What is
not accepted waits in the kernel, and costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

OPEN_MAX = 1200
"""Connections; more wait in the kernel."""
A_SECOND = 50.0
BURST = 100.0
SILENT_SECONDS_MAX = 10.0
"""A connection without a whole request for so long is closed."""
LOOK_SECONDS = 0.5

DoorAddress = tuple[str, int]


@dataclass(slots=True)
class Guest:
    """An open connection."""

    transport: asyncio.Transport
    quiet_since: float
    requests: int = 0
    """That are being answered."""


class Door:
    """Between the listening socket and the protocol of the server."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._guests: dict[DoorAddress, Guest] = {}
        self._left, self._at = BURST, now()

    def begun(self, address: DoorAddress | None) -> None:
        """A whole request has come from there."""
        if address is not None and (guest := self._guests.get(address)) is not None:
            guest.requests += 1

    def ended(self, address: DoorAddress | None) -> None:
        """It was answered."""
        if address is not None and (guest := self._guests.get(address)) is not None:
            guest.requests -= 1
            guest.quiet_since = self._now()

    async def serve(
        self, listening: socket.socket, make: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        looking = asyncio.create_task(self._look_around())
        try:
            while True:
                await self._room()
                try:
                    connection, address = await loop.sock_accept(listening)
                except OSError:  # gone again, or no descriptors left: others wait
                    await asyncio.sleep(LOOK_SECONDS)
                    continue
                with contextlib.suppress(OSError):
                    transport, _ = await loop.connect_accepted_socket(make, connection)
                    self._guests[address[:2]] = Guest(transport, self._now())
        finally:
            looking.cancel()

    async def _room(self) -> None:
        now = self._now()
        self._left = min(BURST, self._left + (now - self._at) * A_SECOND) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / A_SECOND)
        while len(self._guests) >= OPEN_MAX:
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = self._now()
            for address, guest in list(self._guests.items()):
                is_quiet = not guest.requests and now - guest.quiet_since > SILENT_SECONDS_MAX
                if guest.transport.is_closing():
                    del self._guests[address]
                elif is_quiet:
                    guest.transport.abort()
