"""Runs a strategy: turns its steps into orders to workers, and their outcomes into its next step.

Orders that fail are counted and otherwise taken for done: whatever a copy or an import does not
bring comes from the store. Only a change of owners must succeed: it waits for the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anabranch.migration import steps as step
from anabranch.migration.plan import GroupMove, by_pair, moves_between
from anabranch.migration.strategies import ALWAYS_AS_ASKED, STANDBY, idle_steps_of, steps_of
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol.coordinator_messages import (
    Effect,
    MoveEnded,
    MoveRequested,
    OrderDone,
    OrderFailed,
    SendOrder,
)
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.move_context import MoveContext
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.protocol.move_parts import (
    ACROSS_HOSTS,
    ATOMIC,
    NOT_FLIPPED,
    ON_HOST,
    SIMPLE,
    STEPS_ON,
    MovePhase,
    StrategyTask,
    settle,
)


@dataclass(slots=True)
class MoveRun:
    """One request and how far it has come."""

    request: MoveRequested
    context: MoveContext
    order_ids: Iterator[int]
    moves: tuple[GroupMove, ...] = ()
    phases: dict[KeyGroup, MovePhase] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    tasks: list[StrategyTask] = field(default_factory=list)
    main: StrategyTask | None = None
    """The strategy, or what takes its place while no batch runs."""
    orders: dict[int, tuple[StrategyTask, SendOrder]] = field(default_factory=dict)
    is_started: bool = False
    is_ending: bool = False
    is_ended: bool = False
    reason: str = ""
    inherited: tuple[GroupMove, ...] = ()
    """Moves of the one before whose state has not all arrived."""
    settled: set[GroupMove] = field(default_factory=set)
    """Those of them whose state has arrived."""
    copies: tuple[GroupMove, ...] = ()
    """Replicas that the one before has left for this one."""
    successor_keeps: frozenset[tuple[KeyGroup, WorkerId]] = frozenset()

    # -- events --

    def begin(
        self, inherited: tuple[GroupMove, ...] = (), copies: tuple[GroupMove, ...] = ()
    ) -> list[Effect]:
        """Start the workers that are needed, then the strategy."""
        self.inherited, self.copies = inherited, copies
        request = self.request
        starts = self.context.start_workers(request.workers, request.hosts, request.drained_hosts)
        return starts + self.poll()

    def order_ended(self, event: OrderDone | OrderFailed) -> list[Effect]:
        """A worker has answered."""
        found = self.orders.pop(event.order, None)
        if found is None:
            return []  # of a step that was given up
        task, sent = found
        task.waiting.discard(event.order)
        if isinstance(event, OrderFailed):
            self.counters["orders_failed"] += 1
        else:
            for name, amount in event.counters.items():
                task.counters[name] = task.counters.get(name, 0) + amount
                self.counters[name] += amount
            peer, size = sent.order.peer, event.counters.get("bytes", 0)
            if peer is not None and size:
                apart = self.context.are_apart(sent.worker, peer)
                self.counters[ACROSS_HOSTS if apart else ON_HOST] += size
            self._note(task, sent)
        effects = [] if task.waiting else self._continue(task)
        return effects + self._hurry() if self._may_hurry() else effects

    def poll(self) -> list[Effect]:
        """Something about workers or batches has changed: look whether a task can go on."""
        if self.is_ended:
            return []
        given_up = [w for w in self.request.workers if self.context.is_given_up(w)]
        if given_up and not self.is_ending:
            return self.give_way(f"Worker {given_up[0]} could not be started.")
        if given_up:
            self._stop_restarting()
            return self._end_if_done()
        if not self.is_started:
            up = all(self.context.incarnation_up(w) is not None for w in self.request.workers)
            return self._start() if up else []
        effects: list[Effect] = []
        for task in list(self.tasks):
            if not task.waiting and task in self.tasks:
                effects.extend(self._look(task))
        return effects

    def epoch_passed(self) -> list[Effect]:
        """A batch was committed, or none has come for a while."""
        if self._may_hurry():
            return self._hurry()
        waiting = [t for t in self.tasks if isinstance(t.current, step.NextEpoch)]
        effects = [e for t in waiting if t in self.tasks for e in self._resume(t, step.Outcome())]
        return effects + self.poll()

    def give_way(
        self, reason: str, keeps: frozenset[tuple[KeyGroup, WorkerId]] = frozenset()
    ) -> list[Effect]:
        """End before the strategy's end; a change of owners that is under way is finished first.

        `keeps` are replicas that the successor will use.
        """
        if self.is_ending or self.is_ended:
            return []
        self.is_ending, self.reason, self.successor_keeps = True, reason, keeps
        effects: list[Effect] = []
        for task in list(self.tasks):
            if not isinstance(task.current, ATOMIC):
                self._close(task)
            elif isinstance(task.current, step.Flip) and not task.waiting:
                effects.extend(self._revoke(task))  # it waits for a target that is not there
        if any(self.context.is_given_up(w) for w in self.request.workers):
            self._stop_restarting()
        return effects + self._end_if_done()

    def hosts_awaited(self, reason: str) -> list[Effect]:
        """Workers have waited long enough for a host: a move to one of them gives up."""
        waiting = [w for w in self.request.workers if self.context.is_waiting(w)]
        if not waiting:
            return []
        return self.give_way(f"No host has room for {', '.join(waiting)}: {reason}")

    def _stop_restarting(self) -> None:
        """A worker could not be started again: those that are up go on."""
        for task in list(self.tasks):
            if isinstance(task.current, step.Restart):
                self._close(task)

    # -- observation --

    @property
    def unsettled(self) -> tuple[GroupMove, ...]:
        """Moves whose owner has changed but whose state has not all arrived."""
        if not self.reason:
            return ()
        own = [m for m in self.moves if self.phases[m.group] is MovePhase.FLIPPED]
        return (*(m for m in self.inherited if m not in self.settled), *own)

    @property
    def kept(self) -> tuple[GroupMove, ...]:
        """Moves whose replicas are left for the successor."""
        return tuple(m for m in self._copies() if (m.group, m.target) in self.successor_keeps)

    # -- start and end --

    def _start(self) -> list[Effect]:
        self.is_started = True
        self.moves = moves_between(self.context.routing.owners, self.request.owners)
        self.phases = {m.group: MovePhase.PLANNED for m in self.moves}
        if self.inherited:
            self.tasks.append(StrategyTask(settle(self.inherited)))
        self.main = self._next_main()
        if self.main is not None:
            self.tasks.append(self.main)
        effects = [e for task in list(self.tasks) for e in self._resume(task, None)]
        return effects + self._end_if_done()

    def _next_main(self) -> StrategyTask | None:
        """What moves the key groups that have not flipped yet; None: there are none."""
        left = tuple(m for m in self.moves if self.phases[m.group] in NOT_FLIPPED)
        if not left:
            return None
        name, idle, steps = self.request.strategy, self.context.idle, None
        if idle is not None:
            steps = idle_steps_of(name, left, idle)
        return StrategyTask(steps or steps_of(name, left, self.request.options))

    def _go_on(self) -> list[Effect]:
        self.main = self._next_main()
        if self.main is None:
            return self._end_if_done()
        self.tasks.append(self.main)
        return self._resume(self.main, None)

    def _may_hurry(self) -> bool:
        """Whether all that is left of the strategy waits for batches, and none runs."""
        if self.context.idle is None or self.request.strategy in ALWAYS_AS_ASKED:
            return False
        own = [t for t in self.tasks if t is self.main or t.parent is not None]
        waits = (step.NextEpoch, step.Together)
        return bool(own) and all(isinstance(t.current, waits) for t in own)

    def _hurry(self) -> list[Effect]:
        """The rest of the strategy gives way; it begins anew with what is left if a batch does."""
        for task in [t for t in self.tasks if t is self.main or t.parent is not None]:
            self._close(task)
        self.context.shadow(self.moves, on=False)
        return self._go_on()

    def _spawn(self, steps: step.Steps, parent: StrategyTask) -> list[Effect]:
        task = StrategyTask(steps, parent)
        self.tasks.append(task)
        return self._resume(task, None)

    def _resume(self, task: StrategyTask, outcome: step.Outcome | None) -> list[Effect]:
        task.counters, task.acked, task.is_flipping = {}, {}, False
        if self.is_ending:
            self._close(task)
            return self._end_if_done()
        try:
            task.current = task.steps.send(outcome)
        except StopIteration:
            return self._finished(task)
        return self._begin_step(task)

    def _finished(self, task: StrategyTask) -> list[Effect]:
        self.tasks.remove(task)
        parent = task.parent
        if task is self.main:
            return self._go_on()
        if parent is None:
            return self._end_if_done()
        parent.running -= 1
        if parent.queue:
            parent.running += 1
            return self._spawn(parent.queue.pop(0), parent)
        return self._resume(parent, step.Outcome()) if not parent.running else []

    def _close(self, task: StrategyTask) -> None:
        task.steps.close()
        for part in task.queue:
            part.close()
        self.tasks.remove(task)
        for order in task.waiting:
            self.orders.pop(order, None)

    def _end_if_done(self) -> list[Effect]:
        if self.tasks or self.is_ended:
            return []
        self.is_ended = True
        effects = self.context.ungate()
        self.context.shadow(self.moves, on=False)
        effects.extend(self._clean_up())
        if not self.reason:
            effects.extend(self.context.stop_workers(self.request.workers))
        number, counters = self.request.number, dict(self.counters)
        phases = Counter(phase.value for phase in self.phases.values())
        return [*effects, MoveEnded(number, self.reason, counters, phases)]

    def _clean_up(self) -> list[Effect]:
        """Nobody waits for these: they only give memory back."""
        # At its own end nothing needs a source any more: what did not arrive is in the store.
        done = (MovePhase.SETTLED,) if self.reason else (MovePhase.SETTLED, MovePhase.FLIPPED)
        settled = [m for m in self.inherited if m in self.settled or not self.reason]
        settled += [m for m in self.moves if self.phases[m.group] in done]
        copies = [m for m in self._copies() if (m.group, m.target) not in self.successor_keeps]
        effects: list[Effect] = []
        for moves, at_target in ((settled, False), (copies, True)):
            for (source, target), some in by_pair(moves).items():
                groups = tuple(dict.fromkeys(m.group for m in some))  # it may have moved twice
                effects.extend(self._clean(None, source, target, groups))
                if at_target:
                    effects.extend(self._clean(None, target, source, groups))
        return effects

    def _copies(self) -> list[GroupMove]:
        """Moves that did not come to pass: there may be replicas, and deltas for them."""
        own = [m for m in self.moves if self.phases[m.group] in NOT_FLIPPED]
        groups = {m.group for m in self.moves}
        before = [m for m in self.copies if m.group not in groups or not self.is_started]
        return own + before

    def _clean(
        self,
        task: StrategyTask | None,
        worker: WorkerId,
        peer: WorkerId,
        groups: tuple[KeyGroup, ...],
    ) -> list[Effect]:
        # Its version tells it from copies that were ordered later.
        order = WorkerOrder(OrderKind.CLEAN, groups, peer, self.context.next_version())
        return self._send(task, worker, order)

    # -- steps --

    def _begin_step(self, task: StrategyTask) -> list[Effect]:
        wanted: step.Step = task.current
        effects: list[Effect] = []
        match wanted:
            case step.Connect() | step.Copy() | step.CatchUp() | step.Import() | step.Lag():
                effects = self._order_targets(task, wanted)
            case step.Clean():
                flipped = (m for m in self.moves if self.phases[m.group] is MovePhase.FLIPPED)
                needed = {(m.group, m.source) for m in flipped}  # it has moved away again
                moves = [m for m in wanted.moves if (m.group, m.source) not in needed]
                for (source, target), some in by_pair(moves).items():
                    groups = tuple(m.group for m in some)
                    effects.extend(self._clean(task, source, target, groups))
            case step.SaveAll() | step.LoadAll():
                kind = OrderKind.SAVE if isinstance(wanted, step.SaveAll) else OrderKind.LOAD
                for worker in dict.fromkeys(self.context.routing.owners):
                    effects.extend(self._send(task, worker, WorkerOrder(kind)))
            case step.Flip():
                return self._grant(task)
            case step.Restart():
                self.phases.update(
                    dict.fromkeys((m.group for m in wanted.moves), MovePhase.SETTLED)
                )
                self.counters["flips"] += len(wanted.moves)
                return self.context.restart_workers(self.request.workers, wanted.moves)
            case step.CloseGate():
                held = None if wanted.moves is None else frozenset(m.group for m in wanted.moves)
                self.context.gate(held)
            case step.OpenGate():
                effects = self.context.ungate()
            case step.Shadow():
                self.context.shadow(wanted.moves, wanted.on)
            case step.AddCount():
                self.counters[wanted.name] += wanted.amount
            case step.Together():
                task.queue = list(wanted.parts)
                first = [task.queue.pop(0) for _ in range(min(wanted.limit, len(task.queue)))]
                task.running = len(first)
                for part in first:
                    effects.extend(self._spawn(part, task))
                return effects if first else self._resume(task, step.Outcome())
            case step.AskIdle():
                task.counters["idle"] = int(self.context.idle is not None)
            case step.Quiet() | step.NextEpoch():
                return self._look(task)
            case _:
                unhandled(wanted)
        return effects if task.waiting else effects + self._continue(task)

    def _look(self, task: StrategyTask) -> list[Effect]:
        """Whether what a task waits for, other than orders, is there."""
        wanted: step.Step | None = task.current
        match wanted:
            case step.Quiet():
                may = self.context.is_quiet() or self._has_lost_source()
                return self._resume(task, step.Outcome()) if may else []
            case step.NextEpoch():
                return self._resume(task, step.Outcome()) if self._has_lost_source() else []
            case step.Restart():
                workers = self.request.workers
                up = all(self.context.incarnation_up(w) is not None for w in workers)
                return self._resume(task, step.Outcome()) if up else []
            case step.Flip():
                return self._grant(task)
            case (
                None
                | step.Together()
                | step.Connect()
                | step.Copy()
                | step.CatchUp()
                | step.Import()
                | step.Lag()
                | step.Clean()
                | step.SaveAll()
                | step.LoadAll()
                | step.CloseGate()
                | step.OpenGate()
                | step.Shadow()
                | step.AskIdle()
                | step.AddCount()
            ):
                return []  # an epoch, a part or an order resumes it, or nothing has to
            case _:
                unhandled(wanted)

    def _has_lost_source(self) -> bool:
        """Whether a source has no process and no host has room for it.

        Its host was lost, say. Batches end only after its key groups have another owner.
        """
        if self.request.strategy == STANDBY:
            return False
        left = (m.source for m in self.moves if self.phases[m.group] in NOT_FLIPPED)
        return any(self.context.is_waiting(source) for source in left)

    def _continue(self, task: StrategyTask) -> list[Effect]:
        """All orders of a step have ended."""
        if isinstance(task.current, step.Flip) and not task.is_flipping:
            return self._change(task)
        return self._resume(task, step.Outcome(task.counters))

    def _order_targets(self, task: StrategyTask, wanted: Any) -> list[Effect]:
        effects: list[Effect] = []
        for (source, target), some in by_pair(wanted.moves).items():
            order = WorkerOrder(
                SIMPLE[type(wanted)],
                tuple(m.group for m in some),
                source,
                self.context.next_version(),
                order=getattr(wanted, "order", step.ImportPriority.INDEX),
                by_bin=getattr(wanted, "by_bin", False),
            )
            effects.extend(self._send(task, target, order))
        return effects

    # -- change of owners --

    def _grant(self, task: StrategyTask) -> list[Effect]:
        """First half: every target learns what it will own."""
        effects: list[Effect] = []
        # Also those whose target died after it had answered.
        missing = [m for m in task.current.moves if self._acked_by(task, m) is None]
        for (source, target), some in by_pair(missing).items():
            if self.context.incarnation_up(target) is None:
                continue  # asked again when it is up
            order = WorkerOrder(
                OrderKind.GRANT,
                tuple(m.group for m in some),
                source,
                self.context.next_version(),
                task.current.arrival,
                task.current.ready_first,
            )
            effects.extend(self._send(task, target, order))
        return effects

    def _acked_by(self, task: StrategyTask, move: GroupMove) -> int | None:
        incarnation = task.acked.get(move)
        up = self.context.incarnation_up(move.target)
        return incarnation if incarnation is not None and incarnation == up else None

    def _change(self, task: StrategyTask) -> list[Effect]:
        """Second half: lanes go to the targets from now on, the sources learn it."""
        moves = task.current.moves
        if any(self._acked_by(task, move) is None for move in moves):
            if self.is_ending:  # a target is not there, and nothing has changed yet
                return self._revoke(task) + self._end_if_done()
            return self._grant(task)
        task.is_flipping = True
        effects = self.context.change_owners(moves)
        self.counters["flips"] += len(moves)
        for (source, target), some in by_pair(moves).items():
            groups = tuple(m.group for m in some)
            for group in groups:
                self.phases[group] = MovePhase.FLIPPED
            version = self.context.routing.version
            order = WorkerOrder(OrderKind.RELEASE, groups, target, version)
            effects.extend(self._send(task, source, order))
        return effects if task.waiting else effects + self._continue(task)

    def _revoke(self, task: StrategyTask) -> list[Effect]:
        """Give up a change of owners: targets that may know of it learn that nothing changed."""
        effects: list[Effect] = []
        moves, task.current = task.current.moves, None  # a clean-up waits for the answers
        for (source, target), some in by_pair(moves).items():
            groups = tuple(m.group for m in some)
            version = self.context.next_version()
            order = WorkerOrder(OrderKind.RELEASE, groups, source, version)
            effects.extend(self._send(task, target, order))
        if not task.waiting:
            self._close(task)
        return effects

    # -- orders --

    def _send(
        self, task: StrategyTask | None, worker: WorkerId, order: WorkerOrder
    ) -> list[Effect]:
        # A process that has just started may own by its first grant what has flipped since, and may
        # have been copied from.
        is_told = order.kind in (OrderKind.RELEASE, OrderKind.CLEAN)
        find = self.context.incarnation_told if is_told else self.context.incarnation_up
        incarnation = find(worker)
        if incarnation is None:
            return []
        sent = SendOrder(next(self.order_ids), worker, incarnation, order)
        if task is not None:
            task.waiting.add(sent.number)
            self.orders[sent.number] = task, sent
        return [sent]

    def _note(self, task: StrategyTask, sent: SendOrder) -> None:
        order = sent.order
        if order.kind in STEPS_ON and order.peer is not None:
            before, after = STEPS_ON[order.kind]
            moved = {GroupMove(group, order.peer, sent.worker) for group in order.groups}
            own = [m.group for m in self.moves if m in moved and self.phases[m.group] is before]
            self.phases.update(dict.fromkeys(own, after))
            if order.kind is OrderKind.IMPORT:
                self.settled.update(moved.intersection(self.inherited))
        if order.kind is OrderKind.GRANT:
            granted = [m for m in task.current.moves if m.group in order.groups]
            task.acked.update(dict.fromkeys(granted, sent.incarnation))
