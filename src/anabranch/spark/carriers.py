"""On which hosts Spark jobs carry agents, and when to try again. Pure: no clock, no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.model.ids import HostId

PAUSE_SECONDS = (1.0, 30.0)
"""First and longest pause before a host is tried again; it doubles with each failure in a row."""

LASTING_SECONDS = 30.0
"""An agent that was there for so long did not fail to start."""


@dataclass(slots=True)
class CarrierPlan:
    """Hosts with agents, or about to have one."""

    hosts_max: int | None = None
    """None: every host with executors."""
    running: dict[HostId, float] = field(default_factory=dict)
    """Since when each has a job."""
    _failures: dict[HostId, int] = field(default_factory=dict)
    _not_before: dict[HostId, float] = field(default_factory=dict)

    def needed(self, present: Iterable[HostId], now: float) -> list[HostId]:
        """Hosts that get a job now; of too many, those that have failed least."""
        ready = [
            host
            for host in sorted(present, key=lambda h: (self._failures.get(h, 0), h))
            if host not in self.running and now >= self._not_before.get(host, now)
        ]
        if self.hosts_max is None:
            return ready
        return ready[: max(0, self.hosts_max - len(self.running))]

    def began(self, host: HostId, now: float) -> None:
        """A job was submitted."""
        self.running[host] = now

    def ended(self, host: HostId, now: float) -> float:
        """It is over, however; returns the pause."""
        lived = now - self.running.pop(host)
        failures = 0 if lived >= LASTING_SECONDS else self._failures.get(host, 0)
        first, longest = PAUSE_SECONDS
        pause = min(longest, first * 2.0**failures)
        self._failures[host], self._not_before[host] = failures + 1, now + pause
        return pause
