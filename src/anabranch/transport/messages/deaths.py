"""How lanes and workers hear from the coordinator which processes are gone."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.transport.messages.kinds import AliveHead, Stream


@dataclass(frozen=True, slots=True)
class DeathsHead:
    """Nobody is at these addresses any more; the first one names those of the recent past."""

    gone: tuple[str, ...]
    here: tuple[str, ...] = ()
    """Where a new process listens by now, where one was that is gone."""


WatchHead = DeathsHead | AliveHead


@dataclass(frozen=True, slots=True)
class WatchDeaths(Stream[WatchHead]):
    """Tell which processes are gone, from now until the caller leaves."""

    caller: str
    """For the log: a lane's process, or a worker."""
