"""Messages with random delays: in order within a channel, in any order between channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.simulation.scheduler import Scheduler

MESSAGE_TICKS = 4


class Network:
    """Delivers messages between endpoints; a cut holds them back until it heals."""

    __slots__ = ("_busy_until", "_cuts", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._busy_until: dict[object, int] = {}
        self._cuts: dict[tuple[str, str], int] = {}

    def send(
        self,
        ends: tuple[str, str],
        channel: object,
        label: str,
        deliver: Callable[..., None],
        *args: Any,
    ) -> None:
        """Deliver after a while. `ends` are in sorted order; `channel` None: no order is kept."""
        scheduler = self._scheduler
        when = scheduler.now + scheduler.delay(MESSAGE_TICKS)
        if self._cuts:
            when = max(when, self._cuts.get(ends, 0))
        if channel is not None:
            busy = self._busy_until.get(channel, 0)
            if busy > when:
                when = busy
            self._busy_until[channel] = when
        scheduler.at(when, label, deliver, *args)

    def hold(self, channel: object, ticks: int) -> None:
        """Let the next message of a channel take at least so long."""
        when = self._scheduler.now + ticks
        self._busy_until[channel] = max(self._busy_until.get(channel, 0), when)

    def cut(self, ends: tuple[str, str], ticks: int) -> None:
        """Partition two endpoints for a while."""
        self._cuts[ends] = self._scheduler.now + ticks
