"""Messages with random delays: in order within a channel, in any order between channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from anabranch.model.ids import HostId
from anabranch.simulation.scheduler import Scheduler, Timer

MESSAGE_TICKS = 4


class Endpoint(Protocol):
    """Who sends and who receives."""

    @property
    def end(self) -> str:
        """The coordinator, a lane or a worker, whichever process it is."""

    @property
    def host(self) -> HostId:
        """Where it runs."""

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""

    @property
    def scheduler(self) -> Timer:
        """By which it lives."""


class SimulatedNetwork:
    """Delivers messages between endpoints; a cut holds them back until it heals."""

    __slots__ = ("_busy_until", "_cuts", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._busy_until: dict[object, int] = {}
        self._cuts: dict[tuple[str, str], int] = {}

    def send(
        self,
        source: Endpoint,
        target: Endpoint,
        channel: object,
        label: str,
        deliver: Callable[..., None],
        *args: Any,
    ) -> None:
        """Deliver after a while; `channel` None: no order is kept."""
        when = self._moment(source, target)
        if channel is not None:
            busy = self._busy_until.get(channel, 0)
            if busy > when:
                when = busy
            self._busy_until[channel] = when
        self._schedule(when, source, target, label, deliver, args)

    def _moment(self, source: Endpoint, target: Endpoint) -> int:
        """When something that is sent now comes, if nothing of its channel is before it."""
        scheduler = self._scheduler
        when = scheduler.now + scheduler.delay(MESSAGE_TICKS)
        if self._cuts:
            return max(when, self._cuts.get(_pair(source.end, target.end), 0))
        return when

    def send_late(
        self,
        ticks: int,
        source: Endpoint,
        target: Endpoint,
        label: str,
        deliver: Callable[..., None],
        *args: Any,
    ) -> None:
        """Deliver after so long."""
        when = self._scheduler.now + ticks
        self._schedule(when, source, target, label, deliver, args)

    def _schedule(
        self,
        when: int,
        source: Endpoint,
        target: Endpoint,
        label: str,
        deliver: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        self._scheduler.at(when, label, deliver, *args)

    def hold(self, channel: object, ticks: int) -> None:
        """Let the next message of a channel take at least so long."""
        when = self._scheduler.now + ticks
        self._busy_until[channel] = max(self._busy_until.get(channel, 0), when)

    def cut(self, ends: tuple[str, str], ticks: int) -> None:
        """Partition two endpoints for a while."""
        self._cuts[_pair(*ends)] = self._scheduler.now + ticks


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)
