"""Carries out what the protocol orders for moves, and gives users their handle on them."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from anabranch.coordinator import steady_clock
from anabranch.coordinator.batch_watch import BatchWatch, Observed
from anabranch.coordinator.calls import (
    ORDER_SECONDS_MAX,
)
from anabranch.coordinator.copy_rate import CopyRate
from anabranch.coordinator.journal_notes import JournalNotes
from anabranch.coordinator.move_handle import CANCELLED, STOPPED, GateClock, MoveHandle, Progress
from anabranch.coordinator.move_plans import MovePlans
from anabranch.coordinator.move_request import MoveWish, OpenRequest
from anabranch.coordinator.order_message import order_message
from anabranch.coordinator.planning import (
    Forecast,
    TargetLayout,
    forecast,
)
from anabranch.errors import AnabranchError, InvalidArgument, ServiceUnavailable
from anabranch.migration.strategies import ALWAYS_AS_ASKED, STANDBY
from anabranch.model.ids import KeyGroup
from anabranch.processes.crash_points import crash_point
from anabranch.processes.worker_pool import WorkerPool
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.move_orders import WorkerOrder
from anabranch.protocol.move_parts import ACROSS_HOSTS, ON_HOST, MovePhase
from anabranch.protocol.move_queue import SUPERSEDED
from anabranch.transport.messages.kinds import Call
from anabranch.transport.messages.orders import Order, OrderReply, SaveReply

_log = logging.getLogger("anabranch.moves")

IDLE_SECONDS = 1.0
STOP_SECONDS_MAX = 10.0
"""Without a batch for so long, a move does not wait for the next one."""

RECENT_MOVES = 100
"""Requests that are remembered after their end."""

RATE = "rate"
"""News: it has changed."""

News = tuple[str, float | None] | str | None

LOADS_SECONDS_MAX = 2.0
"""For sizes of idle key groups; a worker that does not say them in time has small ones."""


class MoveRunner(MovePlans):
    """Between the protocol, the workers and the user."""

    def __init__(
        self,
        machine: protocol.CoordinatorMachine,
        lock: Any,
        dispatch: Callable[[protocol.Event], None],
        pool: WorkerPool,
        batches: BatchWatch,
        publish: Callable[[str, Collection[str]], None],
        notes: JournalNotes,
    ) -> None:
        super().__init__(machine, lock, pool)
        self._dispatch = dispatch
        self._batches = batches
        self._publish = publish
        self._notes = notes
        self._numbers = itertools.count(1)
        self._asking = threading.RLock()
        """Held for the whole of a request; taken before the lock of the protocol.

        A handler of a signal may ask in the middle of its own thread's request.
        """
        self._is_stopped = False
        self._orders: set[threading.Thread] = set()
        self._moves: dict[int, OpenRequest] = {}
        self._recent: deque[MoveHandle] = deque(maxlen=RECENT_MOVES)
        self._latest = 0
        """The last request."""
        self._cancelled: set[int] = set()
        self._moved: Counter[str] = Counter()
        """Bytes of moves that have ended."""
        self.gate = GateClock()
        self.rate = CopyRate(lock, pool, batches)
        self._was_idle = False
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        """Operator and seconds (None: not known) of each committed batch; RATE; None: stop."""
        self._thread = threading.Thread(target=self._watch, name="anabranch-moves", daemon=True)
        self._thread.start()

    @property
    def is_moving(self) -> bool:
        """Whether key groups are on their way just now; a standby alone does not count."""
        with self._lock:
            current = self._machine.moves.current
            return current is not None and current.request.strategy != STANDBY

    # -- for users --

    def wanted(self) -> TargetLayout:
        """The owners and workers that the request that runs will end with: plans go on from them.

        A standby changes nothing, so what was wanted before it still is.
        """
        with self._lock:
            latest = self._moves.get(self._latest)
            return self.plan() if latest is None else latest.wanted

    def forecast(self, plan: TargetLayout, wish: MoveWish) -> Forecast:
        """What a request would do."""
        sizes = {group: load.bytes for group, load in self._loads().items()}
        rate, wait = self.rate.usual(wish), self._batches.usual_wait(IDLE_SECONDS)
        if wish.strategy not in ALWAYS_AS_ASKED and self._idle_since(steady_clock.now()):
            wait = 0.0  # for nobody
        now, before = self.hosts(), self.plan()
        plan = self.seating.seated(plan, now)
        return forecast(wish.strategy, before, plan, sizes, rate, wish.options, wait, now.at)

    def recent(self) -> list[MoveHandle]:
        """Running and recent requests."""
        with self._lock:
            return list(self._recent)

    def ask(self, make_plan: Callable[[MoveRunner], TargetLayout], wish: MoveWish) -> MoveHandle:
        """Plan and begin: a request of another thread in between would be forgotten."""
        with self._asking:
            plan = make_plan(self)
            if plan.lack:
                raise InvalidArgument(plan.lack)
            return self._request(self.seating.seated(plan, self.hosts()), wish)

    def _request(self, plan: TargetLayout, wish: MoveWish) -> MoveHandle:
        """Begin; a reconfiguration that runs gives way.

        Asking is held: the protocol hears of requests in the order of their numbers.
        """
        number = next(self._numbers)
        now = self.plan()
        self.seating.settle(plan.placed)
        move = MoveHandle(
            number,
            wish.strategy,
            now.owning,
            plan.workers,
            self._look,
            self._batches.between,
            self._cancel,
            partial(self._retarget, wish),
            wish.cause,
        )
        seen = self._idle_since(move.started)
        idle = None if seen is None else protocol.BatchesIdle(seen.ended, self._sizes())
        event = protocol.MoveRequested(
            number,
            plan.owners,
            plan.workers,
            wish.strategy,
            dict(wish.options),
            idle,
            plan.hosts,
            plan.drained_hosts,
        )
        with self._lock:
            if self._is_stopped:
                raise ServiceUnavailable("The state service was stopped. Create a new one.")
            # Whatever it replaces has left things half way: back means to before all of them.
            replaced = self._moves.get(self._latest)
            before = now if replaced is None else replaced.before
            wanted = self.wanted() if wish.strategy == STANDBY else plan
            self._latest, self._moves[number] = number, OpenRequest(move, wish, before, wanted)
            self._recent.append(move)
            self.rate.begin(wish, is_idle=self._machine.idle is not None)
        self._notes.move_started(move, wish)
        self._dispatch(event)
        return move

    def _idle_since(self, since: float) -> Observed | None:
        """What is known of batches when a request comes; None: they run, or have lately."""
        try:
            seen = self._batches.observe(since)
            return seen if seen.is_idle and self._batches.is_silent(IDLE_SECONDS) else None
        except Exception as error:  # the gateway is busy, say; it is asked again soon
            _log.info("Whether batches run is not known: %s", error)
            return None

    def _sizes(self) -> dict[KeyGroup, int]:
        loads = self._loads(LOADS_SECONDS_MAX)
        return {KeyGroup(group): load.bytes for group, load in loads.items()}

    def _cancel(self, move: MoveHandle, cause: str) -> MoveHandle:
        with self._asking:
            with self._lock:
                found = self._moves.get(move.number)
                if found is None or move.number != self._latest:
                    return move  # ended already, or about to: another request has taken its place
                self._cancelled.add(move.number)
            wish = found.wish
            strategy = wish.strategy if wish.strategy != STANDBY else "live"
            how = replace(wish, strategy=strategy, options={}, assignment="minimal", cause=cause)
            return self._request(found.before, how)

    def _retarget(self, wish: MoveWish, workers: int, cause: str) -> MoveHandle:
        how = replace(wish, cause=cause)
        return self.ask(lambda moves: moves.rescale(workers, wish.assignment), how)

    # -- for the coordinator --

    def send(self, effect: protocol.SendOrder) -> None:
        """Let a worker carry out an order, in the background."""
        name = f"anabranch-order-{effect.number}"
        thread = threading.Thread(target=self._send, args=(effect,), name=name, daemon=True)
        with self._lock:
            self._orders = {order for order in self._orders if order.is_alive()} | {thread}
            thread.start()

    def look(self) -> None:
        """After each event that the machine has heard; the lock is taken."""
        self.gate.look(self._machine.gate is not None)
        is_idle = self._machine.idle is not None
        if self._was_idle != is_idle:
            self.rate.idle_changed(is_idle)
            self._news.put(RATE)
        self._was_idle = is_idle

    def batch_committed(self, operator: str, seconds: float | None) -> None:
        """For the rate of copies."""
        self._news.put((operator, seconds))

    def stop(self) -> None:
        """End the thread and everybody's wait."""
        self._news.put(None)
        self._thread.join(STOP_SECONDS_MAX)
        with self._lock:
            self._is_stopped = True
            moves, self._moves = list(self._moves.values()), {}
        for each in moves:
            each.move.ended(STOPPED, {})
            self._notes.move_ended(each.move)

    def wait_for_orders(self, seconds_max: float) -> None:
        """After the workers' end: nothing of a late reply reaches a store that is closed."""
        deadline = time.monotonic() + seconds_max
        for thread in list(self._orders):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _log.error("%s does not end; the service stops without it", thread.name)

    def _send(self, effect: protocol.SendOrder) -> None:
        kind = effect.order.kind
        peer = self._pool.peers().get(effect.worker)
        if not effect.order.is_first_grant:
            crash_point("coordinator", f"order-{kind.value}")
        try:
            if peer is None or self._pool.address(effect.worker, effect.incarnation) is None:
                raise AnabranchError(f"Worker {effect.worker} is gone.")
            message: Call[OrderReply | SaveReply] = self._message(effect.order)
            reply = peer.call_patiently(message, ORDER_SECONDS_MAX[kind])
            if isinstance(reply, SaveReply) and not self._is_stopped:
                for operator, snapshots in reply.snapshots.items():
                    self._publish(operator, snapshots)
        except Exception as error:  # whatever it is, the move goes on another way
            _log.info("Order %s to %s failed: %s", kind.value, effect.worker, error)
            self._dispatch(protocol.OrderFailed(effect.number, str(error)))
            return
        self._dispatch(protocol.OrderDone(effect.number, reply.counters))

    def _message(self, order: WorkerOrder) -> Order:
        peer = None if order.peer is None else self._pool.peers().get(order.peer)
        address = None if peer is None else peer.address
        with self._lock:
            rate = self.rate.now
            epochs = {name: view.committed for name, view in self._machine.operators.items()}
        return order_message(order, address, rate, epochs)

    def ended(self, effect: protocol.MoveEnded) -> None:
        """Nothing is left to do for a request."""
        with self._lock:
            found = self._moves.pop(effect.number, None)
            self._moved.update({n: effect.counters.get(n, 0) for n in (ON_HOST, ACROSS_HOSTS)})
            was_cancelled = effect.number in self._cancelled
            self._cancelled.discard(effect.number)
            counters = {**effect.counters, **self.gate.take()}
            if effect.number == self._latest:
                counters.update(self.rate.counters())
        if found is None:
            return
        reason = effect.reason
        if was_cancelled:
            reason = CANCELLED
        elif reason and reason != SUPERSEDED:
            reason = f"failed: {reason}"
        found.move.ended(reason, counters, _progress(effect.phases))
        self._notes.move_ended(found.move)

    # -- observation --

    def running(self) -> dict[str, Any] | None:
        """The reconfiguration that runs, for status()."""
        with self._lock:
            current = self._machine.moves.current
            found = self._moves.get(current.request.number) if current is not None else None
        if found is None:
            return None
        move = found.move
        return {"strategy": move.strategy, "progress": round(move.progress, 3)}

    def moved_bytes(self) -> dict[str, int]:
        """Bytes that moves have copied since the start, for status()."""
        with self._lock:
            current = self._machine.moves.current
            total = self._moved + (current.counters if current is not None else Counter())
        return {"on_host": total[ON_HOST], "across_hosts": total[ACROSS_HOSTS]}

    def _look(self, move: MoveHandle) -> tuple[Progress, Mapping[str, int]]:
        with self._lock:
            current = self._machine.moves.current
            if current is None or current.request.number != move.number:
                return Progress(1, 0, 0, 0), {}
            phases = Counter(phase.value for phase in current.phases.values())
            if current.is_started and not phases:
                return Progress(0, 0, 0, 0), {}
            return _progress(phases), dict(current.counters)

    # -- rate --

    def _watch(self) -> None:
        while True:
            is_silent, news = False, None
            try:
                news = self._news.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                is_silent = True
            try:
                if is_silent:
                    self._idle()
                elif news is None:
                    return
                else:
                    self._heard(news)
            except Exception:  # without this thread, moves of idle queries would never end
                _log.exception("Moves did not hear of batches; tried again in %s s", IDLE_SECONDS)

    def _heard(self, news: tuple[str, float | None] | str) -> None:
        with self._lock:
            is_moving = bool(self._moves)
        if not is_moving:
            return
        if isinstance(news, str):
            self.rate.tell()
        else:
            self.rate.committed(*news)

    def _idle(self) -> None:
        with self._lock:
            current = self._machine.moves.current
            found = self._moves.get(current.request.number) if current is not None else None
            is_known = self._machine.idle is not None
        if found is None:
            return
        # A slow batch is no pause: it is slow perhaps because of the move.
        seen = self._batches.observe(since=found.move.started)
        if seen.stuck:
            self._dispatch(protocol.BatchesStuck(seen.stuck))
        if not seen.is_idle:
            return
        self._dispatch(protocol.BatchesIdle(seen.ended, {} if is_known else self._sizes()))
        self.rate.nothing_runs()


def _progress(phases: Mapping[str, int]) -> Progress:
    """How far a move has come; without key groups it has not begun."""
    reached = (MovePhase.COPIED, MovePhase.FLIPPED, MovePhase.SETTLED)
    total = sum(phases.values())
    return Progress(total or 1, *(phases.get(phase.value, 0) for phase in reached))
