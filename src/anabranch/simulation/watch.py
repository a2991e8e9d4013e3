"""The watch stream: the coordinator says at which addresses nobody is any more, and where again.

News come to a listener in their order: late, or never. A listener is a worker's process, or that of
all lanes of a host. It remembers which addresses are gone: whoever was told of them before
comes a little later. Ports are used again, so it also hears which addresses are somebody's again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId
from anabranch.simulation.checks import Failure
from anabranch.simulation.network import Endpoint
from anabranch.simulation.scheduler import Timer

if TYPE_CHECKING:
    from anabranch.simulation.hosts import Hosts
    from anabranch.simulation.worker import WorkerProcess

REMEMBERED_TICKS = 360
PUSH_TICKS = 40
"""A push takes less, if nothing holds it up."""
HELD_TICKS = 200
"""As long may news be on their way that were sent in a cut that has healed."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The process in which the lanes of a host run."""

    end: str
    host: HostId
    scheduler: Timer
    is_alive: bool = True


class SimulatedWatch:
    """All news, and what is remembered of them."""

    def __init__(self, hosts: Hosts, cancel: Callable[[str, str], None]) -> None:
        """`cancel` ends what a listener has under way to an address."""
        self.hosts = hosts
        self._cancel = cancel
        self._here_since: dict[str, int] = {}
        """Addresses that were gone and are somebody's again."""
        self._ever_gone: set[str] = set()
        self._remembered: dict[str, dict[str, int]] = {}
        """By listener: until when addresses count as gone."""

    # -- the coordinator --

    def gone(self, processes: list[WorkerProcess]) -> None:
        """Nobody is there any more."""
        addresses = tuple(process.address for process in processes)
        for address in addresses:
            self._here_since.pop(address, None)
        self._ever_gone.update(addresses)
        self._tell(addresses, ())

    def here(self, process: WorkerProcess) -> None:
        """A process listens, perhaps where another one did."""
        if process.address in self._ever_gone:
            self._here_since[process.address] = self.hosts.cluster.scheduler.now
            self._tell((), (process.address,))

    def _tell(self, gone: tuple[str, ...], here: tuple[str, ...]) -> None:
        cluster = self.hosts.cluster
        cluster.scheduler.after(1, "", self._hear, "C", gone, here)
        listeners: list[Endpoint] = [*self._lanes(), *cluster.processes.values()]
        for listener in listeners:
            if listener.is_alive:
                name = name_of(listener)
                what = f"gone {', '.join(gone)}" if gone else f"here {', '.join(here)}"
                label = f"{name} hears: {what}"
                channel, told = ("watch", name), (name, gone, here)
                self.hosts.network.send(
                    cluster.coordinator, listener, channel, label, self._hear, *told
                )

    def _lanes(self) -> list[Lanes]:
        return [Lanes(f"lanes of {name}", name, host) for name, host in self.hosts.of.items()]

    # -- listeners --

    def _hear(self, listener: str, gone: tuple[str, ...], here: tuple[str, ...]) -> None:
        remembered = self._remembered.setdefault(listener, {})
        until = self.hosts.cluster.scheduler.now + REMEMBERED_TICKS
        for address in gone:
            remembered[address] = until
            self._cancel(listener, address)
        for address in here:
            remembered.pop(address, None)

    def forget(self, host: HostId) -> None:
        """A host has died with all processes on it."""
        self._remembered.pop(f"lanes of {host}", None)

    def refuses(self, caller: Endpoint, process: WorkerProcess) -> bool:
        """Whether a caller takes a process for gone."""
        remembered = self._remembered.get(name_of(caller), {})
        now = self.hosts.cluster.scheduler.now
        if remembered.get(process.address, 0) <= now:
            return False
        since, host = (
            self._here_since.get(process.address, now),
            self.hosts.of[caller.host],
        )
        # News wait behind those that a cut held up before.
        is_open = self.hosts.network.was_open(DRIVER, host.name, since - HELD_TICKS)
        is_late = is_open and now - since > PUSH_TICKS
        if is_late and not host.has_slept:
            raise Failure(f"{caller.end} was not told that {process.name} is there")
        self.hosts.cluster.count("calls_refused")
        return True


def name_of(caller: Endpoint) -> str:
    """The listener on behalf of a caller."""
    if caller.end.startswith("L"):
        return f"lanes of {caller.host}"
    return str(getattr(caller, "name", caller.end))
