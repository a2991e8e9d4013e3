"""Carries out what the protocol orders for moves, and gives users their handle on them."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.migration.strategies import STANDBY
from anabranch.model.ids import WorkerId
from anabranch.model.stats import ROWS_DEFERRED, ROWS_FORWARDED, TIMES
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.ground import MovePhase
from anabranch.protocol.orders import OrderKind, WorkerOrder
from anabranch.protocol.reconfigurations import SUPERSEDED
from anabranch.runtime import steady
from anabranch.runtime.crashes import crash_point
from anabranch.runtime.move import CANCELLED, GateClock, MoveHandle, Progress
from anabranch.runtime.operator import Operator
from anabranch.runtime.pacer import LEAST_BYTES_PER_SECOND, START_BYTES_PER_SECOND, Pacer
from anabranch.runtime.planning import (
    COPY_BYTES_PER_SECOND,
    Forecast,
    Plan,
    drained,
    forecast,
    moved,
    rebalanced,
    rescaled,
)
from anabranch.runtime.pool import WorkerPool
from anabranch.transport.wire import Message

_log = logging.getLogger("anabranch.moves")

LATELY_SECONDS = 10.0
"""A batch since then: the query is under load."""

IDLE_SECONDS = 1.0
"""Without a batch for so long, a move does not wait for the next one."""

COUNTED = (*TIMES, ROWS_FORWARDED, ROWS_DEFERRED)
"""What reports say of each batch."""

PACED_STRATEGIES = {"live": LEAST_BYTES_PER_SECOND, "lazy": 4 * LEAST_BYTES_PER_SECOND}
"""Strategies whose copies adapt to the batches, and how slow they may become.

Under `lazy` batches fetch what has not come, so that they are slow until all has come.
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a user wants a reconfiguration to be done."""

    strategy: str
    options: Mapping[str, Any]
    bytes_per_second: int | None = None
    latency_target: float | None = None


class Reconfigurer:
    """Between the protocol, the workers and the user."""

    def __init__(
        self,
        machine: protocol.CoordinatorMachine,
        lock: Any,
        dispatch: Callable[[protocol.Event], None],
        pool: WorkerPool,
        operators: Mapping[str, Operator],
        publish: Callable[[str, list[str]], None],
    ) -> None:
        self._machine = machine
        self._lock = lock
        self._dispatch = dispatch
        self._pool = pool
        self._operators = operators
        self._publish = publish
        self._numbers = itertools.count(1)
        self._moves: dict[int, tuple[MoveHandle, Wish, Plan, Plan]] = {}
        """Moves that have not ended, with the plan to go back to (the last that nothing changed)
        and the one to reach."""
        self._latest = 0
        """The last request."""
        self._cancelled: set[int] = set()
        self.gate = GateClock()
        self._pacer: Pacer | None = None
        self._news: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        """Seconds of each committed batch; None: stop."""
        self._thread = threading.Thread(target=self._pace, name="anabranch-moves", daemon=True)
        self._thread.start()

    @property
    def is_moving(self) -> bool:
        """Whether key groups are on their way just now; a standby alone does not count."""
        with self._lock:
            current = self._machine.moves.current
            return current is not None and current.request.strategy != STANDBY

    # -- for users --

    def plan(self) -> Plan:
        """The present owners and workers."""
        with self._lock:
            return Plan(self._machine.routing.owners, tuple(self._machine.workers))

    def wanted(self) -> Plan:
        """The owners and workers that the request that runs will end with: plans go on from them.

        A standby changes nothing, so what was wanted before it still is.
        """
        with self._lock:
            latest = self._moves.get(self._latest)
            return self.plan() if latest is None else latest[3]

    def rescale(self, workers: Any, assignment: str) -> Plan:
        """Plan for a number of workers."""
        return rescaled(self.wanted(), self.plan().owners, workers, assignment)

    def move(self, groups: Any, to: Any) -> Plan:
        """Plan for some key groups."""
        return moved(self.wanted(), groups, to)

    def drain(self, worker: Any) -> Plan:
        """Plan without a worker."""
        return drained(self.wanted(), self.plan().owners, worker)

    def rebalance(self) -> Plan:
        """Plan by measured load: rows lately, or bytes if there are none or not all are known."""
        loads = self._loads()
        is_known = not any(load["unseen"] for load in loads.values())
        kind = "rows" if is_known and any(load["rows"] for load in loads.values()) else "bytes"
        load = {group: float(load[kind]) for group, load in loads.items()}
        return rebalanced(self.wanted(), load)

    def forecast(self, plan: Plan, wish: Wish) -> Forecast:
        """What a request would do."""
        sizes = {group: load["bytes"] for group, load in self._loads().items()}
        return forecast(wish.strategy, self.plan(), plan, sizes, self._usual_rate(wish))

    def _usual_rate(self, wish: Wish) -> int:
        """Bytes a second that copies begin with."""
        rate = wish.bytes_per_second or COPY_BYTES_PER_SECOND
        if wish.strategy in PACED_STRATEGIES and self._is_busy():
            rate = min(rate, max(START_BYTES_PER_SECOND, PACED_STRATEGIES[wish.strategy]))
        return rate

    def _is_busy(self) -> bool:
        now = steady.now()
        return any(
            operator.timings and now - operator.timings[-1].started < LATELY_SECONDS
            for operator in self._operators.values()
        )

    def _loads(self) -> dict[int, Counter[str]]:
        """Bytes and recent rows of each key group, over all operators."""
        total: dict[int, Counter[str]] = {}
        for peer in self._pool.peers().values():
            try:
                groups = peer.call("groups", {}, timeout_seconds=10)["groups"]
            except AnabranchError:
                continue  # it just went away
            for group, load in groups.items():
                total.setdefault(int(group), Counter()).update(load)
        return total

    def request(self, plan: Plan, wish: Wish) -> MoveHandle:
        """Begin; a reconfiguration that runs gives way."""
        number = next(self._numbers)
        now = self.plan()
        move = MoveHandle(
            number,
            wish.strategy,
            now.workers,
            plan.workers,
            self._look,
            self._batches,
            self._cancel,
            self._retarget,
        )
        event = protocol.ReconfigurationRequested(
            number, plan.owners, plan.workers, wish.strategy, dict(wish.options)
        )
        with self._lock:
            # Whatever it replaces has left things half way: going back means to before all of them.
            replaced = self._moves.get(self._latest)
            before = now if replaced is None else replaced[2]
            wanted = self.wanted() if wish.strategy == STANDBY else plan
            self._latest, self._moves[number] = number, (move, wish, before, wanted)
            rate, target = wish.bytes_per_second, wish.latency_target
            is_paced = wish.strategy in PACED_STRATEGIES or rate or target
            least = PACED_STRATEGIES.get(wish.strategy, LEAST_BYTES_PER_SECOND)
            self._pacer = Pacer(self._seconds_before(), target, rate, least) if is_paced else None
        self._dispatch(event)
        return move

    def _cancel(self, move: MoveHandle) -> MoveHandle:
        with self._lock:
            found = self._moves.get(move.number)
            if found is None or move.number != self._latest:
                return move  # ended already, or about to: another request has taken its place
            self._cancelled.add(move.number)
        _, wish, before, _ = found
        strategy = wish.strategy if wish.strategy != STANDBY else "live"
        return self.request(before, Wish(strategy, {}, wish.bytes_per_second, wish.latency_target))

    def _retarget(self, move: MoveHandle, workers: int) -> MoveHandle:
        with self._lock:
            found = self._moves.get(move.number)
        wish = found[1] if found is not None else Wish(move.strategy, {})
        return self.request(self.rescale(workers, "minimal"), wish)

    # -- for the coordinator --

    def perform(self, effect: protocol.Effect) -> None:
        """An effect that concerns moves."""
        match effect:
            case protocol.SendOrder():
                name = f"anabranch-order-{effect.number}"
                threading.Thread(target=self._send, args=(effect,), name=name, daemon=True).start()
            case protocol.StopWorker():
                self._pool.retire(effect.worker, effect.incarnation)
            case protocol.ReconfigurationEnded():
                self._ended(effect)

    def batch_committed(self, seconds: float | None) -> None:
        """For the pace."""
        self._news.put(seconds or 0.0)

    def stop(self) -> None:
        """End the thread and everybody's wait."""
        self._news.put(None)
        self._thread.join()
        with self._lock:
            moves, self._moves = list(self._moves.values()), {}
        for move, *_ in moves:
            move.ended("The service was stopped.", {})

    def _send(self, effect: protocol.SendOrder) -> None:
        kind = effect.order.kind
        peer = self._pool.peers().get(effect.worker)
        crash_point("coordinator", f"order-{kind.value}")
        try:
            if peer is None or self._pool.address(effect.worker, effect.incarnation) is None:
                raise AnabranchError(f"Worker {effect.worker} is gone.")
            reply = peer.call(kind.value, self._body(effect.order))
            if kind is OrderKind.SAVE:
                for operator, snapshots in reply["snapshots"].items():
                    self._publish(operator, snapshots)
        except Exception as error:  # whatever it is, the move goes on another way
            _log.info("Order %s to %s failed: %s", kind.value, effect.worker, error)
            self._dispatch(protocol.OrderFailed(effect.number, str(error)))
            return
        self._dispatch(protocol.OrderDone(effect.number, reply.get("counters", {})))

    def _body(self, order: WorkerOrder) -> Message:
        peers = self._pool.peers()
        with self._lock:
            pacer = self._pacer
            epochs = {name: view.committed for name, view in self._machine.operators.items()}
        return {
            "groups": order.groups,
            "peer": order.peer,
            "address": peers[order.peer].address if order.peer in peers else None,
            "version": order.version,
            "arrival": order.arrival.value,
            "ready_first": order.ready_first,
            "order": order.order.value,
            "by_bin": order.by_bin,
            "rate": None if pacer is None else pacer.rate,
            "epochs": epochs,
        }

    def _ended(self, effect: protocol.ReconfigurationEnded) -> None:
        with self._lock:
            found = self._moves.pop(effect.number, None)
            was_cancelled = effect.number in self._cancelled
            self._cancelled.discard(effect.number)
            counters = {**effect.counters, **self.gate.take()}
            if self._pacer is not None and effect.number == self._latest:
                counters["slowdowns"] = self._pacer.slowdowns
        if found is None:
            return
        reason = effect.reason
        if was_cancelled:
            reason = CANCELLED
        elif reason and reason != SUPERSEDED:
            reason = f"failed: {reason}"
        found[0].ended(reason, counters)

    # -- observation --

    def running(self) -> dict[str, Any] | None:
        """The reconfiguration that runs, for status()."""
        with self._lock:
            current = self._machine.moves.current
            found = self._moves.get(current.request.number) if current is not None else None
        if found is None:
            return None
        move = found[0]
        return {"strategy": move.strategy, "progress": round(move.progress, 3)}

    def _look(self, move: MoveHandle) -> tuple[Progress, Mapping[str, int]]:
        with self._lock:
            current = self._machine.moves.current
            if current is None or current.request.number != move.number:
                return Progress(1, 0, 0, 0), {}
            phases = [current.phases[m.group] for m in current.moves]
            counters = dict(current.counters)
        count = {phase: phases.count(phase) for phase in MovePhase}
        progress = Progress(
            len(phases) if current.is_started else 1,
            count[MovePhase.COPIED],
            count[MovePhase.FLIPPED],
            count[MovePhase.SETTLED],
        )
        return progress, counters

    def _batches(self, since: float, until: float) -> tuple[Mapping[str, Any], ...]:
        with self._lock:
            operators = list(self._operators.values())
        return tuple(
            {
                "operator": operator.name,
                "epoch": timing.epoch,
                "seconds": timing.seconds,
                **{what: timing.stats.get(what, 0) for what in COUNTED},
            }
            for operator in operators
            for timing in list(operator.timings)
            if timing.seconds is not None
            and timing.started + timing.seconds >= since
            and timing.started <= until
        )

    def _seconds_before(self) -> list[float]:
        return [
            timing.seconds
            for operator in self._operators.values()
            for timing in list(operator.timings)[-20:]
            if timing.seconds is not None
        ]

    # -- pace --

    def _pace(self) -> None:
        while True:
            try:
                seconds = self._news.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self._idle()
                continue
            if seconds is None:
                return
            with self._lock:
                pacer = self._pacer if self._moves else None
            if pacer is not None:
                before = pacer.rate
                if pacer.batch_took(seconds) != before:
                    self._tell(pacer.rate)

    def _idle(self) -> None:
        with self._lock:
            is_moving = bool(self._moves)
            pacer = self._pacer
        # A slow batch is no pause: it is slow perhaps because of the move.
        in_batch = any(operator.is_in_batch() for operator in self._operators.values())
        if is_moving and not in_batch:
            self._dispatch(protocol.BatchesIdle())
            if pacer is not None:
                before = pacer.rate
                if pacer.nothing_runs() != before:
                    self._tell(pacer.rate)

    def _tell(self, rate: int) -> None:
        for peer in self._pool.peers().values():
            try:
                peer.call("pace", {"rate": rate}, timeout_seconds=5)
            except AnabranchError as error:
                _log.info("%s was not told the pace: %s", peer.name, error)
