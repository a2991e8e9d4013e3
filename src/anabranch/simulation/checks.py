"""What must hold: protocol invariants after every step, the oracle at every commit and delivery."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anabranch.model.ids import KeyGroup
from anabranch.protocol import coordinator as control
from anabranch.protocol import invariants
from anabranch.protocol import worker as data
from anabranch.protocol.coordinator import GrantLane, SendOrder, WriteManifest
from anabranch.protocol.residency import residency_of
from anabranch.protocol.residency_messages import Residency
from anabranch.simulation.oracle import GROUPS, OPERATOR, Outputs

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.coordinator import CoordinatorProcess
    from anabranch.simulation.host_checks import HostChecks
    from anabranch.simulation.store import SimulatedManifest
    from anabranch.simulation.worker import WorkerProcess


_CHANGING = frozenset(
    (
        data.ChangesDurable,
        data.GroupsEvicted,
        data.GroupsFetched,
        data.GroupsLoaded,
        data.PartInstalled,
        data.ReplicasChanged,
        data.TransactionApplied,
        data.TransactionFailed,
    )
)


ALL_GROUPS = tuple(KeyGroup(group) for group in range(GROUPS))

_OF_BATCHES = frozenset((control.LaneBegan, control.LaneFinished))


class Failure(AssertionError):
    """The cluster's result differs from the oracle's."""


class Checks:
    """All checks of one scenario."""

    __slots__ = ("cluster", "history", "hosts", "idle_rounds")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = invariants.History()
        self.hosts: HostChecks | None = None
        self.idle_rounds = 0, 0
        """Of the move with a number."""

    # -- after every step --

    def worker_step(self, process: WorkerProcess, event: data.Event) -> None:
        """A worker has taken an event."""
        invariants.check_worker(process.machine)
        cluster = self.cluster
        if type(event) is data.GroupsGranted:
            alive = {p.worker: p.machine for p in cluster.processes.values() if p.is_alive}
            invariants.check_owners(alive)
        if type(event) not in _CHANGING:
            return  # nothing that is held has changed
        self.contents(process)
        if cluster.processes.get(process.worker) is process and cluster.coordinator.is_alive:
            invariants.check_pair(
                cluster.coordinator.machine, process.worker, process.incarnation, process.machine
            )

    def residency(self, process: WorkerProcess) -> dict[KeyGroup, Residency]:
        """How much of each key group is in a worker's memory."""
        return {group: residency_of(process.machine, OPERATOR, group) for group in ALL_GROUPS}

    def residency_changed(
        self, process: WorkerProcess, event: data.Event, before: dict[KeyGroup, Residency]
    ) -> None:
        """A worker has taken an event: what is here has changed as the table says, if at all."""
        after = self.residency(process)
        if after != before:
            invariants.residency_follows_table(before, type(event), after)

    def changing(self, process: WorkerProcess, groups: tuple[KeyGroup, ...]) -> None:
        """What was given to another worker is frozen until it comes back."""
        for group in groups:
            given = process.source.given.get(group)
            if given is not None:
                raise Failure(f"{process.name} changes {group}, which it gave away at {given}")

    def contents(self, process: WorkerProcess) -> None:
        """What a worker holds as of an epoch is the oracle's, owned or not; bins may be missing."""
        busy: set[int] = set()
        for tx in process.machine.transactions.values():
            busy.update(tx.loading)
        for work in process.work.values():
            busy.update(work.changes)
        states = self.cluster.oracle.states
        for group, held in process.machine.held[OPERATOR].items():
            if group in busy:
                continue
            expected = {} if held.as_of is None else states[held.as_of][group]
            record = process.machine.arrivals.find(OPERATOR, group)
            is_part = record is not None and record.phase in (Residency.PARTIAL, Residency.STORED)
            if held.is_partial and (not is_part or (record is not None and record.is_broken)):
                continue  # given away, or broken: nobody will use it
            if held.is_partial != is_part:
                raise Failure(f"{process.name} {group} {held}: {record}")
            if record is not None and is_part:
                absent = partial(process.target.lacks, group, missing=record.missing)
                before = {} if record.origin is None else states[record.origin][group]
                for key in [key for key in {*expected, *before} if absent(key)]:
                    if before.get(key) != expected.get(key):
                        raise Failure(f"{process.name} {group} {held}: {key} must not be missing")
                expected = {k: v for k, v in expected.items() if not absent(k)}
            if process.memory[group] != expected:
                got = process.memory[group]
                raise Failure(f"{process.name} {group} {held} is {got}, must be {expected}")

    def coordinator_step(self, process: CoordinatorProcess, event: control.Event) -> None:
        """The coordinator has taken an event."""
        invariants.check_coordinator(process.machine, type(event) in _OF_BATCHES)
        current = process.machine.moves.current
        if current is None:
            return
        number, rounds = self.idle_rounds
        self.idle_rounds = current.request.number, current.counters["idle_rounds"]
        begun = self.idle_rounds[1] - (rounds if number == current.request.number else 0)
        if begun and process.machine.idle is None:
            raise Failure(f"move {number} goes on as if no batch ran")

    def granted(self, process: CoordinatorProcess, effect: GrantLane) -> None:
        """The coordinator answers a lane."""
        invariants.check_grant(process.machine, effect)
        for worker in effect.owners:
            owner = self.cluster.process(worker, effect.incarnations[worker])
            if owner is not None:
                invariants.check_told(effect, worker, owner.machine)

    def first_grant(self, process: CoordinatorProcess, effect: SendOrder) -> None:
        """The coordinator tells a process that has started what it owns."""
        invariants.check_first_grant(process.machine, effect)

    # -- commits and results --

    def manifest_begun(self, effect: WriteManifest) -> None:
        """A manifest is going to be written."""
        invariants.check_manifest(effect, GROUPS)
        self.history.check(effect)

    def manifest_landed(self, manifest: SimulatedManifest) -> None:
        """An epoch exists: its state, from the store alone, is the oracle's."""
        restored = self.cluster.store.restore_all(manifest.epoch)
        expected = self.cluster.oracle.states[manifest.epoch]
        if restored != expected:
            raise Failure(f"state of batch {manifest.epoch}: {_differences(restored, expected)}")

    def delivered(self, epoch: int, outputs: dict[int, Outputs]) -> None:
        """Spark gives the outputs of a batch to the sink."""
        expected = self.cluster.oracle.outputs[epoch]
        given = [outputs.get(group) for group in range(GROUPS)]
        if given != expected:
            raise Failure(f"outputs of batch {epoch}: {_differences(given, expected)}")

    def at_end(self) -> None:
        """Nothing runs any more."""
        cluster = self.cluster
        if cluster.driver.is_refused:
            return  # an incomplete batch was found, as it must be
        self._moves_ended()
        if cluster.driver.is_stopped:
            return
        last = len(cluster.oracle.batches) - 1
        if cluster.driver.committed != last:
            raise Failure(f"stuck at batch {cluster.driver.epoch}: nothing is left to happen")
        restored = cluster.store.restore_all(last)
        if restored != cluster.oracle.states[last]:
            raise Failure(f"last state: {_differences(restored, cluster.oracle.states[last])}")

    def _moves_ended(self) -> None:
        """Every request has ended and nothing of it is left."""
        cluster = self.cluster
        coordinator, moves = cluster.coordinator.machine, cluster.moves
        if moves.open:
            raise Failure(f"reconfigurations {moves.open} have not ended")
        if coordinator.gate is not None or coordinator.shadows:
            raise Failure(f"left behind: {coordinator.gate} {coordinator.shadows}")
        request = moves.request
        if request is not None and moves.is_reached:
            if coordinator.routing.owners != request.owners:
                raise Failure(f"owners are {coordinator.routing}, must be {request.owners}")
            if set(coordinator.workers) != set(request.workers):
                raise Failure(f"workers are {set(coordinator.workers)}, not {request.workers}")
        for worker, process in cluster.processes.items():
            view = coordinator.workers.get(worker)
            is_there = process.is_alive and not cluster.is_asleep(process)
            if not is_there or process.generation != cluster.generation:
                continue
            if view is None or view.incarnation != process.incarnation:
                raise Failure(f"{process.name} was never stopped")
            granted = process.machine.granted
            if set(granted) != set(coordinator.routing.groups_of(worker)):
                raise Failure(f"{process.name} owns {granted}, not {coordinator.routing}")
            if request is not None and not moves.is_reached:
                continue  # a worker was given up: the next reconfiguration cleans up
            held = set(process.machine.held[OPERATOR]) | set(process.memory)
            if not held <= set(granted):
                raise Failure(f"{process.name} still holds {held - set(granted)}")
            kept = {j.reader for js in process.source.journals.values() for j in js.values()}
            # A zombie may have asked for a copy that nobody knows of; its connection ends with it.
            if not kept.isdisjoint(p.name for p in cluster.processes.values() if p.is_alive):
                raise Failure(f"{process.name} still keeps {process.source.journals}")


def _differences(given: object, expected: object) -> str:
    assert isinstance(given, list)
    assert isinstance(expected, list)
    return "; ".join(
        f"key group {group} is {got}, must be {want}"
        for group, (got, want) in enumerate(zip(given, expected, strict=True))
        if got != want
    )
