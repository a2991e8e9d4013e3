"""Streams of rows to workers, from lanes and from workers that forward, perhaps through a relay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.protocol import worker as protocol
from anabranch.simulation.lane import Answer, SimulatedLane
from anabranch.simulation.network import Endpoint
from anabranch.simulation.oracle import Rows

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.worker import WorkerProcess

SLOW_SHARE, SLOW_TICKS = 0.1, 60
"""Lanes that take their time between their first and their last rows."""


@dataclass(slots=True)
class LaneExchange:
    """One stream to a worker process, from a lane or from a worker that forwards rows."""

    number: int
    task: SimulatedLane | Forward
    process: WorkerProcess
    opened: protocol.TransactionOpened
    relay: WorkerProcess | None = None
    """Who passes everything on."""
    rows: Rows = field(default_factory=dict)
    is_broken: bool = False
    is_hung: bool = False
    """Whether its connection swallows everything, although the hosts reach each other."""


class Forward:
    """Rows of one transaction on their way to a new owner."""

    __slots__ = ("effect", "exchange", "lane", "name", "process")

    def __init__(self, process: WorkerProcess, effect: protocol.ForwardRows, lane: int) -> None:
        self.process = process
        self.effect = effect
        self.lane = lane
        self.name = f"{process.name} tx{effect.tx}"
        self.exchange: LaneExchange | None = None

    @property
    def is_alive(self) -> bool:
        """Whether anybody waits for the outputs."""
        return self.process.is_alive

    @property
    def endpoint(self) -> Endpoint:
        """Who sends the rows."""
        return self.process

    def is_waiting(self, exchange: LaneExchange) -> bool:
        """Whether the new owner's answer is awaited."""
        return self in self.process.forwards

    def answered(self, exchange: LaneExchange, answer: Answer | AnabranchError) -> None:
        """The new owner's answer, or the loss of the stream."""
        process, effect = self.process, self.effect
        if not process.is_alive or process.forwards.pop(self, False) is False:
            return
        if isinstance(answer, AnabranchError):
            error = ServiceUnavailable(f"The new owner did not answer: {answer}")
            process.handle(protocol.ForwardFailed(effect.tx, effect.target, error))
            return
        outputs, reports = process.forwarded.setdefault(effect.tx, ({}, []))
        outputs.update(answer[0])
        reports.extend(answer[1])
        process.cluster.count("groups_forwarded", len(effect.groups))
        process.handle(protocol.RowsForwarded(effect.tx, effect.target))


class Exchanges:
    """All of a scenario."""

    __slots__ = ("cluster", "count")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0

    def open(
        self,
        task: SimulatedLane | Forward,
        process: WorkerProcess,
        opened: protocol.TransactionOpened,
        relay: WorkerProcess | None = None,
    ) -> LaneExchange:
        """A stream to a process, perhaps by way of another one."""
        self.count += 1
        exchange = LaneExchange(self.count, task, process, opened, relay)
        process.exchanges[opened.tx] = exchange
        if self.cluster.hosts is not None:
            self._watch(exchange)
        return exchange

    def _watch(self, exchange: LaneExchange) -> None:
        """Each side notices some time that the other one is gone."""
        assert self.cluster.hosts is not None
        register = self.cluster.hosts.in_flight.register
        caller, process, relay = exchange.task.endpoint, exchange.process, exchange.relay
        hung = partial(getattr, exchange, "is_hung")
        is_waiting = partial(exchange.task.is_waiting, exchange)
        is_received = partial(process.is_receiving, exchange.opened.tx)
        if relay is None:
            register(caller, process, is_waiting, partial(_lose, exchange, None), hung)
            register(process, caller, is_received, partial(_lane_gone, exchange), hung)
        else:
            self.cluster.count("exchanges_relayed")
            register(caller, relay, is_waiting, partial(_lose, exchange, relay), hung)
            register(relay, process, is_waiting, partial(self._lose_behind, exchange), hung)
            register(process, relay, is_received, partial(_lane_gone, exchange), hung)

    def _lose_behind(self, exchange: LaneExchange, is_cut: bool) -> None:
        """A relay does not reach the worker behind it, and says so."""
        relay, caller = exchange.relay, exchange.task.endpoint
        assert relay is not None
        label = f"{exchange.task.name} hears that {relay.name} reaches nobody"
        self.cluster.network.send(relay, caller, None, label, _lose, exchange, None, is_cut)

    def _to_worker(
        self, exchange: LaneExchange, label: str, deliver: Callable[..., None], *args: Any
    ) -> None:
        process, relay, number = exchange.process, exchange.relay, exchange.number
        if exchange.is_hung:
            return
        if relay is None:
            self.cluster.network.send(
                exchange.task.endpoint, process, number, label, deliver, *args
            )
            return
        on = relay, process, (number, "behind"), label, deliver, args
        self.cluster.network.send(exchange.task.endpoint, relay, number, "", self._pass_on, *on)

    def _to_caller(
        self, exchange: LaneExchange, label: str, deliver: Callable[..., None], *args: Any
    ) -> None:
        process, relay, caller = exchange.process, exchange.relay, exchange.task.endpoint
        if exchange.is_hung:
            return
        if relay is None:
            self.cluster.network.send(process, caller, None, label, deliver, *args)
            return
        on = relay, caller, None, label, deliver, args
        self.cluster.network.send(process, relay, None, "", self._pass_on, *on)

    def _pass_on(
        self,
        relay: WorkerProcess,
        target: Endpoint,
        channel: object,
        label: str,
        deliver: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        if relay.is_alive:
            self.cluster.network.send(relay, target, channel, label, deliver, *args)

    def send_rows(self, exchange: LaneExchange, rows: Rows) -> None:
        """Open, rows, end mark."""
        process, opened = exchange.process, exchange.opened
        label = f"{process.name} tx{opened.tx} of {exchange.task.name}: "
        kind = "shadow" if opened.is_shadow else "opened"
        text = f"{label}{kind} {opened.groups} base {opened.base}"
        self.stream(exchange, text, process.open, exchange)
        if rows:
            self.stream(exchange, f"{label}rows", process.receive, exchange, rows)
        if self.cluster.rng.random() < SLOW_SHARE:
            self.cluster.network.hold(exchange.number, int(self.cluster.rng.random() * SLOW_TICKS))
        self.stream(exchange, f"{label}end mark", process.end_mark, exchange)

    def stream(
        self, exchange: LaneExchange, label: str, deliver: Callable[..., None], *args: Any
    ) -> None:
        """Something that a lane sends in an exchange."""
        self._to_worker(exchange, label, deliver, *args)

    def answer(self, exchange: LaneExchange, answer: Answer | AnabranchError) -> None:
        """Something that a worker sends in an exchange."""
        task = exchange.task
        kind = "refusal" if isinstance(answer, AnabranchError) else "outputs"
        label = f"{task.name} gets {kind} of {exchange.process.name} tx{exchange.opened.tx}"
        self._to_caller(exchange, label, self._answered, exchange, answer)

    @staticmethod
    def _answered(exchange: LaneExchange, answer: Answer | AnabranchError) -> None:
        if not exchange.is_broken:
            exchange.task.answered(exchange, answer)

    def break_off(self, exchange: LaneExchange) -> None:
        """The stream ends; what is on its way may be lost, each side notices in its own time."""
        exchange.is_broken = self.cluster.rng.random() < 0.7
        process, task = exchange.process, exchange.task
        name = f"{process.name} tx{exchange.opened.tx}"
        if process.is_alive:
            label = f"{name}: lane gone"
            self._to_worker(exchange, label, process.lane_gone, exchange)
        if task.is_alive:
            error = ServiceUnavailable("simulated loss of a connection")
            label = f"{task.name} lost {name}"
            self._to_caller(exchange, label, task.answered, exchange, error)


def _lose(exchange: LaneExchange, relay: WorkerProcess | None, is_cut: bool) -> None:
    """Whoever waits in it begins again; `relay` is the one that is not reached."""
    exchange.is_broken = True
    if is_cut and isinstance(exchange.task, SimulatedLane):
        exchange.task.missed(exchange, relay)
    exchange.task.answered(exchange, ServiceUnavailable("simulated silence"))


def _lane_gone(exchange: LaneExchange, is_cut: bool) -> None:
    exchange.process.lane_gone(exchange)
