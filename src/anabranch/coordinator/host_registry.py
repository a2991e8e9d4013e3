"""The hosts that have joined: answers their agents, tells who comes and who is lost.

Decides nothing about time or claims by itself: `protocol/leases.py` does.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from anabranch.coordinator.join_check import (
    WORKER_BYTES_MIN,
    address_flaw,
    capacity,
    folder_flaw,
    join_flaw,
)
from anabranch.coordinator.location_proof import LocationProof
from anabranch.durability.blobs import BlobStore
from anabranch.model.host import HostFacts
from anabranch.model.ids import AgentId, HostId, WorkerId
from anabranch.processes.environment import driver_environment
from anabranch.protocol.coordinator_messages import HostJoined, HostLost
from anabranch.protocol.leases import Claims, JoinAnswer, LeaseTimes, Loss
from anabranch.transport.messages.hosts import (
    Beat,
    BeatReply,
    Join,
    JoinReply,
    Leave,
    OrderHead,
    Orders,
    Prove,
    ProveReply,
    Report,
    ReturnHead,
    StateFolder,
)
from anabranch.transport.messages.kinds import AliveHead, Nothing
from anabranch.transport.messages.names import AgentCall
from anabranch.transport.signs_of_life import Item

_log = logging.getLogger("anabranch.coordinator")

LOOK_SECONDS_MAX = 60.0
"""Between two looks at agents, if none is expected to be given up earlier."""
STOP_SECONDS_MAX = 5.0
"""For agents to hear that the service is over."""

IS_OVER = "The service has stopped."


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host that has joined, or is joining."""

    facts: HostFacts
    address: str
    carrier: str
    executor: str | None
    agent: AgentId
    since: float
    """Unix time."""
    workers: tuple[WorkerId, ...] = ()
    """As its agent said last."""


class AgentListener(Protocol):
    """What wants to hear of agents: the launcher of their workers."""

    def reported(self, report: Report) -> None:
        """Something has happened to a process."""

    def agent_gone(self, agent: AgentId, reason: str) -> None:
        """All its processes are gone."""

    def open_orders(self, agent: AgentId) -> list[OrderHead]:
        """Orders of which nothing has been heard; they are given again."""


class HostRegistry:
    """All hosts and their agents. `on_joined` and `on_lost` come one at a time, in their order."""

    def __init__(
        self,
        blobs: BlobStore,
        run_id: str,
        on_joined: Callable[[HostJoined], None],
        on_lost: Callable[[HostLost], None],
        times: LeaseTimes | None = None,
        worker_bytes: int = WORKER_BYTES_MIN,
        state_folder: StateFolder | None = None,
    ) -> None:
        """`worker_bytes`: memory that a worker needs."""
        self._worker_bytes = worker_bytes
        self._state_folder = state_folder or StateFolder()
        self._proof = LocationProof(blobs, run_id)
        self._on_joined, self._on_lost = on_joined, on_lost
        self._times = times or LeaseTimes()
        self._claims = Claims(self._times)
        self._joining: dict[AgentId, HostRecord] = {}
        """Agents that have a claim and do not run workers yet."""
        self._records: dict[HostId, HostRecord] = {}
        self._lost: dict[HostId, str] = {}
        self._streams: dict[AgentId, tuple[int, queue.SimpleQueue[OrderHead]]] = {}
        self._numbers = itertools.count(1)
        self._listener: AgentListener | None = None
        self._expected: tuple[int, float] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=target, name=f"anabranch-hosts-{name}", daemon=True)
            for name, target in (("leases", self._watch), ("events", self._tell_all))
        ]

    def start(self) -> None:
        """Be ready for agents."""
        self._proof.begin()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Tell all agents to return; nothing is told about hosts any more."""
        with self._changed:
            self._is_stopping = True
            for _, orders in self._streams.values():
                orders.put(ReturnHead(IS_OVER, is_final=True))
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._streams, STOP_SECONDS_MAX)
        self._events.put(None)
        for thread in self._threads:
            thread.join(STOP_SECONDS_MAX)
        self._proof.end()

    # -- for the coordinator and sources of hosts --

    def listen(self, listener: AgentListener) -> None:
        """Who hears of reports and lost agents."""
        self._listener = listener

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this after a host has joined or was lost."""
        self._callbacks.append(callback)

    def hosts(self) -> dict[HostId, HostRecord]:
        """Those that run workers."""
        with self._changed:
            return dict(self._records)

    def lost(self) -> dict[HostId, str]:
        """Those that were lost and have not come back, and why."""
        with self._changed:
            return dict(self._lost)

    def expect(self, count: int, seconds: float) -> None:
        """Workers start when so many hosts have joined, or after some seconds with those there.

        Once a host has joined, they have started, and nobody waits any more.
        """
        with self._changed:
            if self._records or self._lost:
                return
            self._expected = count, time.monotonic() + seconds
            self._changed.notify_all()

    def agent_of(self, host: HostId) -> AgentId | None:
        """The agent that runs workers on a host."""
        with self._changed:
            record = self._records.get(host)
            return None if record is None else record.agent

    def order(self, host: HostId, order: OrderHead) -> None:
        """Tell the agent of a host, if there is one."""
        agent = self.agent_of(host)
        if agent is not None:
            self.order_agent(agent, order)

    def order_agent(self, agent: AgentId, order: OrderHead) -> None:
        """Tell an agent; its listener knows what to tell again if it cannot hear now."""
        with self._changed:
            stream = self._streams.get(agent)
            if stream is not None:
                stream[1].put(order)

    def release(self, host: HostId, reason: str) -> None:
        """Send the agent of a host away; its workers end."""
        self.order(host, ReturnHead(reason, is_final=True))
        agent = self.agent_of(host)
        if agent is not None:
            self.give_up(agent, reason)

    def give_up(self, agent: AgentId, reason: str) -> None:
        """An agent does not count any more; it may join again as another one."""
        with self._changed:
            self._lose(self._claims.give_up(agent, reason))

    # -- calls of agents --

    def call(self, request: AgentCall) -> object:
        """What agents say."""
        match request:
            case Join():
                return self._join(request)
            case Prove():
                return self._prove(request)
            case Beat():
                return self._beat(request)
            case Report():
                if self._listener is not None:
                    self._listener.reported(request)
                return Nothing()
            case Leave():
                self.give_up(request.agent, request.reason)
                return Nothing()

    def _join(self, request: Join) -> JoinReply:
        host, flaw = request.facts.host, join_flaw(request, self._worker_bytes)
        if flaw is not None:
            _log.warning("%s", flaw)
            return self._refusal(flaw, is_final=True)
        with self._changed:
            if self._is_stopping:
                return self._refusal(IS_OVER, is_final=True)
            answer, loss = self._claims.join(host, request.agent, time.monotonic())
            self._lose(loss)
            if answer in (JoinAnswer.WELCOME, JoinAnswer.AGAIN):
                room = capacity(request.facts, self._worker_bytes)
                self._joining.setdefault(request.agent, _record(request, room))
            self._changed.notify_all()
        if answer is JoinAnswer.TAKEN:
            return self._refusal(f"Host {host} has an agent already: this one is not needed.")
        if answer is JoinAnswer.GIVEN_UP:
            return self._refusal(f"This agent of host {host} was given up.")
        where, times = self._proof, self._times
        return JoinReply(
            *(True, "", False, where.path, where.location, times.beat, times.lease),
            driver_environment(),
            self._state_folder,
        )

    @staticmethod
    def _refusal(reason: str, is_final: bool = False) -> JoinReply:
        return JoinReply(False, reason, is_final, "", "", 0.0, 0.0, {})

    def _prove(self, request: Prove) -> ProveReply:
        with self._changed:
            record = self._joining.get(request.agent)
        if record is None:
            return ProveReply(False, "This agent does not count any more.")
        host = record.facts.host
        flaw = self._proof.flaw(host, request) or folder_flaw(host, request.folder_error)
        flaw = flaw or address_flaw(host, request.agent, request.listens_at)
        if flaw is not None:
            self.give_up(request.agent, flaw)
            return ProveReply(False, flaw)
        return ProveReply(True, "")

    def _beat(self, request: Beat) -> BeatReply:
        with self._changed:
            counts = self._claims.heard(request.agent, time.monotonic())
            host = self._claims.host_of(request.agent)
            if host in self._records:
                self._records[host] = replace(self._records[host], workers=request.workers)
            return BeatReply(counts)

    def stream(self, request: Orders) -> Iterator[Item]:
        """Orders for an agent, for as long as it listens and counts."""
        agent, number = request.agent, next(self._numbers)
        orders: queue.SimpleQueue[OrderHead] = queue.SimpleQueue()
        with self._changed:
            is_first = self._claims.stream_opened(agent, number, time.monotonic())
            if is_first is None or self._is_stopping:
                reason = IS_OVER if self._is_stopping else "This agent does not count any more."
                orders.put(ReturnHead(reason, self._is_stopping))
            else:
                self._streams[agent] = number, orders
                if is_first:
                    self._joined(agent)
                self._changed.notify_all()
        if is_first is False and self._listener is not None:
            for order in self._listener.open_orders(agent):
                orders.put(order)
        try:
            while self._is_current(agent, number) or not orders.empty():
                order = _next(orders, self._times.beat)
                yield order, {}
                if isinstance(order, ReturnHead):
                    return
        finally:
            self._closed(agent, number)

    def _is_current(self, agent: AgentId, number: int) -> bool:
        with self._changed:
            stream = self._streams.get(agent)
            return stream is not None and stream[0] == number

    def _closed(self, agent: AgentId, number: int) -> None:
        with self._changed:
            self._claims.stream_closed(agent, number, time.monotonic())
            if self._streams.get(agent, (0,))[0] == number:
                del self._streams[agent]
            self._changed.notify_all()

    # -- who comes and goes; with the lock --

    def _joined(self, agent: AgentId) -> None:
        record = self._joining.pop(agent)
        host = record.facts.host
        self._records[host] = record
        self._lost.pop(host, None)
        follow = False
        if self._expected is not None:
            follow = len(self._records) < self._expected[0]
            if not follow:
                self._expected = None
        _log.info("Host %s has joined from %s", host, record.address)
        self._events.put(lambda: self._announce(record, follow))

    def _lose(self, loss: Loss | None) -> None:
        if loss is None:
            return
        self._joining.pop(loss.agent, None)
        stream = self._streams.pop(loss.agent, None)
        if stream is not None:
            stream[1].put(ReturnHead(loss.reason, is_final=False))
        self._changed.notify_all()
        if not loss.had_joined:
            _log.warning("Host %s has not joined: %s", loss.host, loss.reason)
        else:
            del self._records[loss.host]
            self._lost[loss.host] = loss.reason
            _log.warning("Host %s is lost: %s", loss.host, loss.reason)
            self._events.put(lambda: self._bury(loss))

    def _watch(self) -> None:
        """Give up the agents whose time is over."""
        with self._changed:
            while not self._is_stopping:
                now = time.monotonic()
                for loss in self._claims.expire(now):
                    self._lose(loss)
                if self._expected is not None and now >= self._expected[1]:
                    self._gather_no_longer()
                until = [self._claims.next_expiry(), self._expected and self._expected[1]]
                known = [moment for moment in until if moment is not None]
                self._changed.wait(min([*known, now + LOOK_SECONDS_MAX]) - now)

    def _gather_no_longer(self) -> None:
        self._expected = None
        if self._records:  # any of them will do: nobody runs anything yet
            record = next(iter(self._records.values()))
            self._events.put(lambda: self._announce(record, False))

    # -- in a thread of their own, in their order --

    def _tell_all(self) -> None:
        # no limit: stop() ends it
        while (event := self._events.get()) is not None:
            try:
                event()
            except Exception:  # the next one may be heard
                _log.exception("Nobody has heard of a host")
            for callback in list(self._callbacks):
                callback()

    def _announce(self, record: HostRecord, others_follow: bool) -> None:
        facts = record.facts
        self._on_joined(HostJoined(facts.host, facts.capacity, facts.labels, others_follow))

    def _bury(self, loss: Loss) -> None:
        self._on_lost(HostLost(loss.host, loss.reason))
        if self._listener is not None:
            self._listener.agent_gone(loss.agent, f"Host {loss.host} is lost: {loss.reason}")


def _next(orders: queue.SimpleQueue[OrderHead], seconds: float) -> OrderHead:
    """The next order, or a sign of life."""
    try:
        return orders.get(timeout=seconds)
    except queue.Empty:
        return AliveHead()


def _record(request: Join, room: int | None) -> HostRecord:
    return HostRecord(
        replace(request.facts, capacity=room),
        request.address,
        request.carrier,
        request.executor,
        request.agent,
        time.time(),
    )
