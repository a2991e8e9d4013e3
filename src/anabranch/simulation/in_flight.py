"""Calls that wait for an answer: a push says that the other side is gone, or its silence does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.model.host import DRIVER
from anabranch.simulation.checks import Failure
from anabranch.simulation.network import Endpoint
from anabranch.simulation.watch import PUSH_TICKS, name_of

if TYPE_CHECKING:
    from anabranch.simulation.hosts import Hosts
    from anabranch.simulation.worker import WorkerProcess

SILENCE_TICKS = 60
"""After so long without a sign of life, a caller asks whether anybody is there."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """One of them."""

    caller: Endpoint
    peer: Endpoint
    is_open: Callable[[], bool]
    give_up: Callable[[bool], None]
    """Ends it; whether the other host does not answer."""
    began: int
    is_hung: Callable[[], bool]
    """Whether its own connection swallows what is sent, although the hosts reach each other."""


class SimulatedCalls:
    """All of them, by who waits."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._calls: dict[Endpoint, dict[PendingCall, None]] = {}
        self._gone: dict[Endpoint, int] = {}
        """When the coordinator heard that processes are gone."""

    def register(
        self,
        caller: Endpoint,
        peer: Endpoint,
        is_open: Callable[[], bool],
        give_up: Callable[[bool], None],
        is_hung: Callable[[], bool] = lambda: False,
    ) -> None:
        """A call has begun; `give_up` ends it if nothing else does."""
        call = PendingCall(
            caller, peer, is_open, give_up, self.hosts.cluster.scheduler.now, is_hung
        )
        self._calls.setdefault(caller, {})[call] = None
        self._look_later(call)

    def _look_later(self, call: PendingCall) -> None:
        call.caller.scheduler.after(SILENCE_TICKS, "", self._look, call)

    def _look(self, call: PendingCall) -> None:
        if call not in self._calls.get(call.caller, ()):
            return
        is_over = not call.caller.is_alive or not call.is_open() or self.hosts.is_closed
        if not is_over and not call.is_hung() and self.hosts.reaches(call.caller, call.peer):
            self._look_later(call)
            return
        self._end(call)
        if not is_over:
            self._check_push(call)
            self.hosts.cluster.count("calls_silent")
            call.give_up(not self.hosts.reaches(call.caller, call.peer))

    def _end(self, call: PendingCall) -> None:
        calls = self._calls[call.caller]
        del calls[call]
        if not calls:
            del self._calls[call.caller]

    def note(self, processes: Iterable[WorkerProcess]) -> None:
        """The coordinator has heard that processes are gone."""
        now = self.hosts.cluster.scheduler.now
        for process in processes:
            self._gone.setdefault(process, now)

    def _check_push(self, call: PendingCall) -> None:
        """Whoever waits hears of deaths by a push, long before it misses a sign of life."""
        gone, now = self._gone.get(call.peer), self.hosts.cluster.scheduler.now
        if gone is None or gone <= call.began or now - gone < PUSH_TICKS:
            return
        host = self.hosts.of[call.caller.host]
        if self.hosts.network.was_open(DRIVER, host.name, gone) and not host.has_slept:
            raise Failure(f"{call.caller.end} was not told that {call.peer.end} is gone")

    def cancel(self, listener: str, address: str) -> None:
        """A listener hears that nobody is at an address: also if somebody is there again."""
        for caller in [caller for caller in self._calls if name_of(caller) == listener]:
            peers = [c for c in self._calls[caller] if getattr(c.peer, "address", "") == address]
            for call in peers:
                self._end(call)
                if caller.is_alive and call.is_open():
                    self.hosts.cluster.count("calls_cancelled")
                    call.give_up(False)
