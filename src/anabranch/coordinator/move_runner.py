"""Carries out what the protocol orders for moves, and gives users their handle on them."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from anabranch.coordinator.batch_watch import BatchWatch
from anabranch.coordinator.move_handle import CANCELLED, STOPPED, GateClock, MoveHandle, Progress
from anabranch.coordinator.move_request import MoveWish, OpenRequest
from anabranch.coordinator.order_message import order_message
from anabranch.coordinator.planning import (
    COPY_BYTES_PER_SECOND,
    Forecast,
    TargetLayout,
    drained,
    forecast,
    moved,
    rebalanced,
    rescaled,
)
from anabranch.coordinator.rate_controller import (
    LEAST_BYTES_PER_SECOND,
    START_BYTES_PER_SECOND,
    RateController,
)
from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.migration.strategies import STANDBY
from anabranch.processes.crash_points import crash_point
from anabranch.processes.worker_pool import WorkerPool
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.move_orders import WorkerOrder
from anabranch.protocol.move_parts import MovePhase
from anabranch.protocol.move_queue import SUPERSEDED
from anabranch.transport.messages.control import GroupLoad, Loads, SetRate
from anabranch.transport.messages.kinds import Call
from anabranch.transport.messages.orders import Order, OrderReply, SaveReply

_log = logging.getLogger("anabranch.moves")

IDLE_SECONDS = 1.0
"""Without a batch for so long, a move does not wait for the next one."""

ADAPTIVE_STRATEGIES = {"live": LEAST_BYTES_PER_SECOND, "lazy": 48 << 20}
"""Strategies whose copies adapt to the batches, and how slow they may become.

Under `lazy` batches fetch what has not come, so that they are slow until all has come.
"""


class MoveRunner:
    """Between the protocol, the workers and the user."""

    def __init__(
        self,
        machine: protocol.CoordinatorMachine,
        lock: Any,
        dispatch: Callable[[protocol.Event], None],
        pool: WorkerPool,
        batches: BatchWatch,
        publish: Callable[[str, Collection[str]], None],
    ) -> None:
        self._machine = machine
        self._lock = lock
        self._dispatch = dispatch
        self._pool = pool
        self._batches = batches
        self._publish = publish
        self._numbers = itertools.count(1)
        self._asking = threading.RLock()
        """Held for the whole of a request; taken before the lock of the protocol.

        A handler of a signal may ask in the middle of its own thread's request.
        """
        self._is_stopped = False
        self._moves: dict[int, OpenRequest] = {}
        self._latest = 0
        """The last request."""
        self._cancelled: set[int] = set()
        self.gate = GateClock()
        self._controller: RateController | None = None
        self._news: queue.SimpleQueue[tuple[str, float | None] | None] = queue.SimpleQueue()
        """Operator and seconds (None: not known) of each committed batch; None: stop."""
        self._thread = threading.Thread(target=self._watch, name="anabranch-moves", daemon=True)
        self._thread.start()

    @property
    def is_moving(self) -> bool:
        """Whether key groups are on their way just now; a standby alone does not count."""
        with self._lock:
            current = self._machine.moves.current
            return current is not None and current.request.strategy != STANDBY

    # -- for users --

    def plan(self) -> TargetLayout:
        """The present owners and workers."""
        with self._lock:
            return TargetLayout(self._machine.routing.owners, tuple(self._machine.workers))

    def wanted(self) -> TargetLayout:
        """The owners and workers that the request that runs will end with: plans go on from them.

        A standby changes nothing, so what was wanted before it still is.
        """
        with self._lock:
            latest = self._moves.get(self._latest)
            return self.plan() if latest is None else latest.wanted

    def rescale(self, workers: Any, assignment: str) -> TargetLayout:
        """Plan for a number of workers."""
        return rescaled(self.wanted(), self.plan().owners, workers, assignment)

    def move(self, groups: Any, to: Any) -> TargetLayout:
        """Plan for some key groups."""
        return moved(self.wanted(), groups, to)

    def drain(self, worker: Any) -> TargetLayout:
        """Plan without a worker."""
        return drained(self.wanted(), self.plan().owners, worker)

    def rebalance(self) -> TargetLayout:
        """Plan by measured load: recent rows, or bytes if there are none or not all are known."""
        loads = self._loads()
        is_known = not any(load.unseen for load in loads.values())
        by_rows = is_known and any(load.rows for load in loads.values())
        load = {g: float(load.rows if by_rows else load.bytes) for g, load in loads.items()}
        return rebalanced(self.wanted(), load)

    def forecast(self, plan: TargetLayout, wish: MoveWish) -> Forecast:
        """What a request would do."""
        sizes = {group: load.bytes for group, load in self._loads().items()}
        rate, wait = self._usual_rate(wish), self._batches.usual_wait(IDLE_SECONDS)
        return forecast(wish.strategy, self.plan(), plan, sizes, rate, wish.options, wait)

    def _usual_rate(self, wish: MoveWish) -> int:
        """Bytes a second that copies begin with."""
        rate = wish.bytes_per_second or COPY_BYTES_PER_SECOND
        if wish.strategy in ADAPTIVE_STRATEGIES and self._batches.is_busy():
            rate = min(rate, max(START_BYTES_PER_SECOND, ADAPTIVE_STRATEGIES[wish.strategy]))
        return rate

    def _loads(self) -> dict[int, GroupLoad]:
        """What each key group costs, over all operators."""
        total: dict[int, GroupLoad] = {}
        for peer in self._pool.peers().values():
            try:
                groups = peer.call(Loads(), timeout_seconds=10).groups
            except AnabranchError:
                continue  # it just went away
            for group, load in groups.items():
                total[group] = total.get(group, GroupLoad()) + load
        return total

    def ask(self, make_plan: Callable[[MoveRunner], TargetLayout], wish: MoveWish) -> MoveHandle:
        """Plan and begin: a request of another thread in between would be forgotten."""
        with self._asking:
            return self._request(make_plan(self), wish)

    def _request(self, plan: TargetLayout, wish: MoveWish) -> MoveHandle:
        """Begin; a reconfiguration that runs gives way.

        Asking is held: the protocol hears of requests in the order of their numbers.
        """
        number = next(self._numbers)
        now = self.plan()
        move = MoveHandle(
            number,
            wish.strategy,
            now.owning,
            plan.workers,
            self._look,
            self._batches.between,
            self._cancel,
            partial(self._retarget, wish),
        )
        event = protocol.MoveRequested(
            number, plan.owners, plan.workers, wish.strategy, dict(wish.options)
        )
        with self._lock:
            if self._is_stopped:
                raise ServiceUnavailable("The state service was stopped. Create a new one.")
            # Whatever it replaces has left things half way: back means to before all of them.
            replaced = self._moves.get(self._latest)
            before = now if replaced is None else replaced.before
            wanted = self.wanted() if wish.strategy == STANDBY else plan
            self._latest, self._moves[number] = number, OpenRequest(move, wish, before, wanted)
            self._controller = self._controller_of(wish)
        self._dispatch(event)
        return move

    def _controller_of(self, wish: MoveWish) -> RateController | None:
        rate, target = wish.bytes_per_second, wish.latency_target
        if wish.strategy not in ADAPTIVE_STRATEGIES and not rate and not target:
            return None
        least = ADAPTIVE_STRATEGIES.get(wish.strategy, LEAST_BYTES_PER_SECOND)
        return RateController(self._batches.seconds_before(), target, rate, least)

    def _cancel(self, move: MoveHandle) -> MoveHandle:
        with self._asking:
            with self._lock:
                found = self._moves.get(move.number)
                if found is None or move.number != self._latest:
                    return move  # ended already, or about to: another request has taken its place
                self._cancelled.add(move.number)
            wish = found.wish
            strategy = wish.strategy if wish.strategy != STANDBY else "live"
            how = MoveWish(strategy, {}, wish.bytes_per_second, wish.latency_target)
            return self._request(found.before, how)

    def _retarget(self, wish: MoveWish, workers: int) -> MoveHandle:
        return self.ask(lambda moves: moves.rescale(workers, wish.assignment), wish)

    # -- for the coordinator --

    def send(self, effect: protocol.SendOrder) -> None:
        """Let a worker carry out an order, in the background."""
        name = f"anabranch-order-{effect.number}"
        threading.Thread(target=self._send, args=(effect,), name=name, daemon=True).start()

    def batch_committed(self, operator: str, seconds: float | None) -> None:
        """For the rate of copies."""
        self._news.put((operator, seconds))

    def stop(self) -> None:
        """End the thread and everybody's wait."""
        self._news.put(None)
        self._thread.join()
        with self._lock:
            self._is_stopped = True
            moves, self._moves = list(self._moves.values()), {}
        for each in moves:
            each.move.ended(STOPPED, {})

    def _send(self, effect: protocol.SendOrder) -> None:
        kind = effect.order.kind
        peer = self._pool.peers().get(effect.worker)
        if not effect.order.is_first_grant:
            crash_point("coordinator", f"order-{kind.value}")
        try:
            if peer is None or self._pool.address(effect.worker, effect.incarnation) is None:
                raise AnabranchError(f"Worker {effect.worker} is gone.")
            message: Call[OrderReply | SaveReply] = self._message(effect.order)
            reply = peer.call(message)
            if isinstance(reply, SaveReply):
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
            rate = None if self._controller is None else self._controller.rate
            epochs = {name: view.committed for name, view in self._machine.operators.items()}
        return order_message(order, address, rate, epochs)

    def ended(self, effect: protocol.MoveEnded) -> None:
        """Nothing is left to do for a request."""
        with self._lock:
            found = self._moves.pop(effect.number, None)
            was_cancelled = effect.number in self._cancelled
            self._cancelled.discard(effect.number)
            counters = {**effect.counters, **self.gate.take()}
            if self._controller is not None and effect.number == self._latest:
                counters["slowdowns"] = self._controller.slowdowns
        if found is None:
            return
        reason = effect.reason
        if was_cancelled:
            reason = CANCELLED
        elif reason and reason != SUPERSEDED:
            reason = f"failed: {reason}"
        found.move.ended(reason, counters, _progress(effect.phases))

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
                    self._committed(*news)
            except Exception:  # without this thread, moves of idle queries would never end
                _log.exception("Moves did not hear of batches; tried again in %s s", IDLE_SECONDS)

    def _committed(self, operator: str, seconds: float | None) -> None:
        with self._lock:
            controller = self._controller if self._moves else None
        if controller is not None and seconds is not None:
            before = controller.rate
            if controller.batch_took(operator, seconds, time.monotonic()) != before:
                self._tell(controller.rate)

    def _idle(self) -> None:
        with self._lock:
            current = self._machine.moves.current
            found = self._moves.get(current.request.number) if current is not None else None
            controller = self._controller
        if found is None:
            return
        # A slow batch is no pause: it is slow perhaps because of the move.
        seen = self._batches.observe(since=found.move.started)
        if seen.stuck:
            self._dispatch(protocol.BatchesStuck(seen.stuck))
        if not seen.is_idle:
            return
        self._dispatch(protocol.BatchesIdle(seen.ended))
        if controller is not None:
            before = controller.rate
            if controller.nothing_runs() != before:
                self._tell(controller.rate)

    def _tell(self, rate: int) -> None:
        for peer in self._pool.peers().values():
            try:
                peer.call(SetRate(rate), timeout_seconds=5)
            except AnabranchError as error:
                _log.info("%s was not told the rate: %s", peer.name, error)


def _progress(phases: Mapping[str, int]) -> Progress:
    """How far a move has come; without key groups it has not begun."""
    reached = (MovePhase.COPIED, MovePhase.FLIPPED, MovePhase.SETTLED)
    total = sum(phases.values())
    return Progress(total or 1, *(phases.get(phase.value, 0) for phase in reached))
