"""Both machines joined by a lossless link, driven by Hypothesis; invariants after every rule."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.errors import AnabranchError, LocationNotWritable, ProcessorError
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol import coordinator as control
from anabranch.protocol import invariants
from anabranch.protocol import worker as data
from anabranch.protocol.epochs import LaneReport, TransactionReport

OP, GROUPS = "counts", 4
NAMES = [WorkerId("w1"), WorkerId("w2")]
PICK = st.integers(0, 10**6)


class Machines(RuleBasedStateMachine):
    """Any order of calls, rows, completions, failures and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator, starts = control.CoordinatorMachine.create(initial_routing(GROUPS, NAMES))
        self.workers: dict[WorkerId, tuple[int, data.WorkerMachine]] = {}
        self.history = invariants.History()
        self.requests: dict[int, tuple[Epoch, Lane, int]] = {}
        self.count = 0
        self.lanes = 2
        self.exchanges: dict[tuple[WorkerId, int, int], tuple[Epoch, Lane, int]] = {}
        self.answers: dict[tuple[Epoch, Lane, int], dict[int, TransactionReport]] = {}
        self.to_do: list[tuple[WorkerId, int, data.Event]] = []
        self.writes: list[control.WriteManifest] = []
        self.starting: list[control.StartWorker] = []
        self.grants: list[control.SendOrder] = []
        """First grants whose answer is on its way."""
        self.tell(control.OperatorRegistered(OP))
        self.effects(starts)

    # -- plumbing --

    def tell(self, event: control.Event) -> None:
        self.effects(self.coordinator.handle(event))

    def effects(self, effects: list[control.Effect]) -> None:
        for effect in effects:
            match effect:
                case control.StartWorker():
                    self.starting.append(effect)
                case control.WriteManifest():
                    invariants.check_manifest(effect, GROUPS)
                    self.history.check(effect)
                    self.writes.append(effect)
                case control.SendOrder():
                    invariants.check_first_grant(self.coordinator, effect)
                    granted = data.GroupsGranted(effect.order.groups, effect.order.version)
                    self.feed(effect.worker, effect.incarnation, granted)
                    self.grants.append(effect)
                case control.GrantLane():
                    invariants.check_grant(self.coordinator, effect)
                    self.open(effect)

    def open(self, grant: control.GrantLane) -> None:
        epoch, lane, lanes = task = self.requests[grant.request]
        for worker, groups in grant.owners.items():
            incarnation, machine = self.workers[worker]
            invariants.check_told(grant, worker, machine)
            assert incarnation == grant.incarnations[worker]
            self.count += 1
            self.exchanges[worker, incarnation, self.count] = task
            owned = tuple(KeyGroup(g) for g in groups)
            opened = data.TransactionOpened(
                self.count, OP, epoch, grant.base, lane, lanes, self.count, owned, grant.version
            )
            self.feed(worker, incarnation, opened)
            self.to_do.append((worker, incarnation, data.RowsComplete(self.count)))

    def feed(self, worker: WorkerId, incarnation: int, event: data.Event) -> None:
        current, machine = self.workers[worker]
        if current != incarnation:
            return  # the process has ended
        for effect in machine.handle(event):
            match effect:
                case data.LoadGroups():
                    self.to_do.append((worker, incarnation, data.GroupsLoaded(effect.tx)))
                case data.ApplyTransaction():
                    self.to_do.append((worker, incarnation, data.TransactionApplied(effect.tx)))
                case data.PersistChanges():
                    self.to_do.append((worker, incarnation, data.ChangesDurable(effect.tx)))
                case data.AnswerTransaction():
                    self.answered(worker, incarnation, effect.tx)
                case data.RefuseTransaction():
                    self.exchanges.pop((worker, incarnation, effect.tx))
        invariants.check_worker(machine)

    def answered(self, worker: WorkerId, incarnation: int, tx: int) -> None:
        _, lane, lanes = task = self.exchanges.pop((worker, incarnation, tx))
        groups = range(lane, GROUPS, lanes)
        owned = [g for g in groups if self.coordinator.routing.owner(g) == worker]
        for group in owned:
            report = TransactionReport(worker, (group,), f"{worker}.{incarnation}/{tx}")
            self.answers.setdefault(task, {})[group] = report

    def next_request(self, task: tuple[Epoch, Lane, int]) -> int:
        self.count += 1
        self.requests[self.count] = task
        return self.count

    def epoch(self) -> Epoch:
        committed = self.coordinator.operators[OP].committed
        return Epoch(0 if committed is None else committed + 1)

    # -- rules --

    @rule(lane=st.integers(0, 2), again=st.booleans())
    def begin(self, lane: int, again: bool) -> None:
        epoch = Epoch(max(0, self.epoch() - again))
        task = epoch, Lane(lane % self.lanes), self.lanes
        request = self.next_request(task)
        self.tell(control.LaneBegan(request, OP, "q", *task))

    @rule()
    def finish(self) -> None:
        for task, reports in sorted(self.answers.items()):
            epoch, lane, lanes = task
            if len(reports) == len(range(lane, GROUPS, lanes)):
                report = LaneReport(tuple(reports[g] for g in sorted(reports)))
                request = self.next_request(task)
                event = control.LaneFinished(request, OP, epoch, lane, lanes, report)
                self.tell(event)

    @rule(pick=PICK)
    def complete(self, pick: int) -> None:
        if self.to_do:
            worker, incarnation, event = self.to_do.pop(pick % len(self.to_do))
            self.feed(worker, incarnation, event)

    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        running = [w for w in self.to_do if not isinstance(w[2], data.RowsComplete)]
        if running:
            work = running[pick % len(running)]
            self.to_do.remove(work)
            worker, incarnation, event = work
            error: AnabranchError = ProcessorError("failed")
            tx = getattr(event, "tx", 0)  # all that is under way belongs to a transaction
            self.feed(worker, incarnation, data.TransactionFailed(tx, error))

    @rule(pick=PICK)
    def lose_lane(self, pick: int) -> None:
        if self.exchanges:
            worker, incarnation, tx = sorted(self.exchanges)[pick % len(self.exchanges)]
            self.feed(worker, incarnation, data.LaneGone(tx))

    @rule(is_written=st.booleans())
    def write(self, is_written: bool) -> None:
        if self.writes:
            write = self.writes.pop(0)
            failed = control.ManifestFailed(OP, write.epoch, LocationNotWritable("full"))
            self.tell(control.ManifestWritten(OP, write.epoch) if is_written else failed)

    @rule(starts=st.booleans())
    def start(self, starts: bool) -> None:
        if self.starting:
            effect = self.starting.pop(0)
            worker, incarnation = effect.worker, effect.incarnation
            if not starts:
                self.tell(control.WorkerDown(worker, incarnation))
                return
            self.workers[worker] = incarnation, data.WorkerMachine()
            self.feed(worker, incarnation, data.OperatorInstalled(OP))
            self.tell(control.WorkerStarted(worker, incarnation))

    @rule(pick=PICK, is_done=st.booleans())
    def answer_grant(self, pick: int, is_done: bool) -> None:
        if self.grants:
            number = self.grants.pop(pick % len(self.grants)).number
            self.tell(control.OrderDone(number) if is_done else control.OrderFailed(number))

    @rule(pick=st.sampled_from(NAMES))
    def crash(self, pick: WorkerId) -> None:
        if pick in self.workers:
            self.tell(control.WorkerDown(pick, self.workers[pick][0]))

    @rule(lanes=st.integers(1, 3))
    def restart_query(self, lanes: int) -> None:
        self.lanes = lanes

    @rule()
    def register_again(self) -> None:
        view = self.coordinator.operators[OP]
        if not any(machine.is_busy(OP) for _, machine in self.workers.values()):
            event = control.OperatorRegistered(
                OP, view.query_id, view.committed, view.before_committed
            )
            self.tell(event)
            for worker, (incarnation, _) in self.workers.items():
                self.feed(worker, incarnation, data.OperatorInstalled(OP))

    # -- safety --

    @invariant()
    def all_hold(self) -> None:
        invariants.check_coordinator(self.coordinator)
        for worker, (incarnation, machine) in self.workers.items():
            invariants.check_worker(machine)
            invariants.check_pair(self.coordinator, worker, incarnation, machine)


TestMachines = Machines.TestCase
TestMachines.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
