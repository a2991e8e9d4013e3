"""What a running move may do with the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.migration.plan import GroupMove
from anabranch.model.ids import HostId, KeyGroup, WorkerId
from anabranch.model.routing import Routing
from anabranch.protocol.coordinator_messages import Effect
from anabranch.protocol.gate import Gate
from anabranch.protocol.host_layout import are_apart

if TYPE_CHECKING:
    from anabranch.protocol.coordinator import CoordinatorMachine


@dataclass(slots=True)
class MoveContext:
    """The coordinator, seen from a move."""

    machine: CoordinatorMachine
    version: int = 0
    """The greatest version ever used."""

    @property
    def routing(self) -> Routing:
        """The present owners."""
        return self.machine.routing

    def next_version(self) -> int:
        """A version that nobody has seen."""
        self.version = max(self.version, self.machine.routing.version) + 1
        return self.version

    def incarnation_up(self, worker: WorkerId) -> int | None:
        """The worker's incarnation if it is up."""
        return self.machine.fleet.incarnation_up(worker)

    def are_apart(self, worker: WorkerId, other: WorkerId) -> bool:
        """Whether two workers are known to run on different hosts."""
        fleet = self.machine.fleet
        return are_apart(fleet.place_of(worker), fleet.place_of(other))

    def incarnation_told(self, worker: WorkerId) -> int | None:
        """The worker's incarnation if it knows, or is about to learn, what it owns."""
        return self.machine.fleet.incarnation_told(worker)

    def is_given_up(self, worker: WorkerId) -> bool:
        """Whether the worker could not be started."""
        return self.machine.fleet.is_given_up(worker)

    def is_waiting(self, worker: WorkerId) -> bool:
        """Whether no host has room for the worker."""
        return self.machine.fleet.is_waiting(worker)

    def change_owners(self, moves: Iterable[GroupMove]) -> list[Effect]:
        """Make a new version of the routing; lanes that waited for an owner before go on."""
        self._route(moves)
        return self.machine.retry_parked()

    def _route(self, moves: Iterable[GroupMove]) -> None:
        machine = self.machine
        owners = list(machine.routing.owners)
        for move in moves:
            owners[move.group] = move.target
            machine.shadows.pop(move.group, None)
        machine.routing = Routing(self.next_version(), tuple(owners))

    def gate(self, groups: frozenset[int] | None) -> None:
        """Hold back batches that begin from now on."""
        self.machine.gate = Gate.close(groups, self.machine.operators)

    def ungate(self) -> list[Effect]:
        """Let them begin."""
        if self.machine.gate is None:
            return []
        self.machine.gate = None
        return self.machine.retry_parked()

    @property
    def idle(self) -> Mapping[KeyGroup, int] | None:
        """Bytes of key groups while no batch runs; None: one has begun."""
        return self.machine.idle

    def is_quiet(self) -> bool:
        """Whether no batch runs that began before the gate."""
        return not any(operator.is_in_batch for operator in self.machine.operators.values())

    def shadow(self, moves: Iterable[GroupMove], on: bool) -> None:
        """Let lanes send rows of moving key groups to their targets too."""
        for move in moves:
            if on and self.routing.owner(move.group) == move.source:
                self.machine.shadows[move.group] = move.target
            else:
                self.machine.shadows.pop(move.group, None)

    def start_workers(
        self,
        workers: Iterable[WorkerId],
        wishes: Mapping[WorkerId, HostId],
        drained: frozenset[HostId],
    ) -> list[Effect]:
        """Start workers that are not there yet."""
        self.machine.fleet.drain(drained)
        return self.machine.fleet.start(workers, wishes)

    def restart_workers(self, keep: Iterable[WorkerId], moves: Iterable[GroupMove]) -> list[Effect]:
        """End all workers, start those that are kept, with the routing after these moves."""
        self._route(moves)
        return self.machine.fleet.restart(keep) + self.machine.retry_parked()

    def stop_workers(self, keep: Iterable[WorkerId]) -> list[Effect]:
        """End workers that own nothing and shall not stay."""
        needed = {*keep, *self.routing.owners}
        idle = [worker for worker in self.machine.workers if worker not in needed]
        return [effect for worker in idle for effect in self.machine.fleet.stop(worker)]
