"""Calls between worker processes: one request, one reply, none from the dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.model.ids import WorkerId

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.worker import WorkerProcess

LOST_SHARE = 0.02
"""Calls whose reply never comes although the other one has done its part."""

Then = Callable[[Any], None]
Serve = Callable[["WorkerProcess", "SimulatedCall"], None]


class SimulatedCall:
    """One call; it ends once, with a reply or with None."""

    __slots__ = ("caller", "cluster", "is_heard", "is_over", "label", "process", "then")

    def __init__(self, caller: WorkerProcess, process: WorkerProcess, label: str, then: Then):
        self.cluster: Cluster = caller.cluster
        self.caller = caller
        self.process = process
        self.label = label
        self.then = then
        self.is_over = False
        self.is_heard = False
        """Whether the caller has its reply, or has given up."""

    def arrive(self, serve: Serve) -> None:
        """The request reaches the process."""
        if self.process.is_alive:
            self.process.calls[self] = None
            serve(self.process, self)
        else:
            self.answer(None)

    def answer(self, reply: Any) -> None:
        """The process answers, or is dead."""
        if self.is_over:
            return
        self.is_over = True
        self.process.calls.pop(self, None)
        if reply is not None and self.cluster.rng.random() < LOST_SHARE:
            reply = None
        outcome = "no reply" if reply is None else "reply"
        label = f"{self.caller.name} gets {outcome}: {self.label}"
        network = self.cluster.network
        network.send(self.process, self.caller, None, label, self._replied, reply)

    def _replied(self, reply: Any) -> None:
        if self.caller.is_alive and not self.is_heard:
            self.is_heard = True
            self.then(reply)

    def is_open(self) -> bool:
        """Whether the caller waits."""
        return not self.is_heard

    def give_up(self, is_cut: bool) -> None:
        """The caller hears that there will be no reply, or nothing at all."""
        self._replied(None)


def ask(caller: WorkerProcess, peer: WorkerId, label: str, serve: Serve, then: Then) -> None:
    """SimulatedCall another worker by its name; `then` gets the reply, None if there is none."""
    cluster = caller.cluster
    process = cluster.reachable(caller, peer)
    if process is None or cluster.refuses(caller, process):
        scheduler = caller.scheduler
        scheduler.after(
            scheduler.delay(4), f"{caller.name} cannot reach {peer}", _lost, caller, then
        )
        return
    call = SimulatedCall(caller, process, f"{process.name} {label}", then)
    if cluster.hosts is not None:
        cluster.hosts.in_flight.register(caller, process, call.is_open, call.give_up)
    text = f"{caller.name} asks {call.label}"
    cluster.network.send(caller, process, None, text, call.arrive, serve)


def _lost(caller: WorkerProcess, then: Then) -> None:
    if caller.is_alive:
        then(None)
