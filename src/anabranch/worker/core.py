"""What all parts of a worker share: its protocol machine, its operators, its lock."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.durability.heat import encode_heat
from anabranch.durability.manifest import file_ref
from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import KeyGroup
from anabranch.processes.crash_points import crash_point
from anabranch.processes.worker_config import WorkerConfig
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.transactions import HeldGroup
from anabranch.worker.busy import BusyClock
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.transactions.transaction import RunningTransaction, TransactionAnswer
from anabranch.worker.user_code import UserCodeWatch

Place = tuple[str, int]
"""Operator and key group."""


class WorkerCore:
    """The machine and what it decides about; `dispatch` is the only way to change either."""

    def __init__(self, config: WorkerConfig, blobs: BlobStore) -> None:
        self.config = config
        self.blobs = blobs
        self.machine = protocol.WorkerMachine(config.bins)
        self.user_code = UserCodeWatch()
        self.changed = threading.Condition()
        """Guards the machine, the slots and the table of running transactions.

        Taken after a slot's `apply_lock`, never before it.
        """
        self.address = ""
        """Where other workers reach this one; known once the server listens."""
        self.slots: dict[str, OperatorSlot] = {}
        self.running: dict[int, RunningTransaction] = {}
        self.answer: Callable[[RunningTransaction], TransactionAnswer]
        self.perform_arrival: Callable[[protocol.ArrivalEffect], None]
        """Set by the part that has the content of key groups on their way."""
        self.on_drop: list[Callable[[str, tuple[int, ...] | None], None]] = []
        """Called with an operator and key groups (None: all) whose state is gone."""
        self.counters: Counter[str] = Counter()
        """What moves have done since the process started."""
        self._busy: dict[str, BusyClock] = {}
        self._counters_lock = threading.Lock()
        self._snapshot_ids = itertools.count(1)

    def busy_with(self, operator: str) -> BusyClock:
        """How long this process was busy with an operator; later definitions go on with it."""
        return self._busy.setdefault(operator, BusyClock())

    # -- protocol --

    def dispatch(self, event: protocol.Event) -> None:
        """Tell the machine; do or pass on what it orders."""
        with self.changed:
            for effect in self.machine.handle(event):
                self._perform(effect)
            self.changed.notify_all()

    def _perform(self, effect: protocol.Effect) -> None:
        match effect:
            case protocol.DropOperator():
                self.slots[effect.operator].drop()
                self._dropped(effect.operator, None)
            case protocol.DropGroups():
                self.slots[effect.operator].drop_groups(effect.groups)
                self._dropped(effect.operator, effect.groups)
            case protocol.DropOutputs():
                for group in effect.groups:
                    self.slots[effect.operator].outputs.pop(group, None)
            case (
                protocol.ForgetParts()
                | protocol.InstallPart()
                | protocol.AdoptPart()
                | protocol.DiscardPart()
            ):
                self.perform_arrival(effect)
            case protocol.AnswerTransaction():
                if effect.tx in self.running:  # else whoever worked on it has failed
                    run = self.running[effect.tx]
                    run.todo.put(self.answer(run))
            case (
                protocol.ChooseDeferred()
                | protocol.AwaitArrivals()
                | protocol.FetchGroups()
                | protocol.LoadGroups()
                | protocol.ForwardRows()
                | protocol.ApplyTransaction()
                | protocol.PersistChanges()
                | protocol.RefuseTransaction()
            ):
                if effect.tx in self.running:
                    self.running[effect.tx].todo.put(effect)
            case _:
                unhandled(effect)

    def _dropped(self, operator: str, groups: tuple[int, ...] | None) -> None:
        for listener in self.on_drop:
            listener(operator, groups)

    def held(self, operator: str, group: int) -> HeldGroup | None:
        """What the machine holds of a key group; call it with `changed` taken."""
        return self.machine.held.get(operator, {}).get(KeyGroup(group))

    def source_of(self, operator: str, group: int) -> str | None:
        """Who still has (part of) its state; call it with `changed` taken."""
        return self.machine.source_of(operator, KeyGroup(group))

    def is_owner(self, group: int) -> bool:
        """Whether it belongs to this worker; call it with `changed` taken."""
        return self.machine.owners.is_owner(KeyGroup(group))

    def wait_idle(
        self,
        operator: str,
        groups: Iterable[int],
        timeout_seconds: float,
        shadows: bool = False,
    ) -> None:
        """Wait until no transaction (or no shadow transaction) is busy with the key groups."""
        wanted = [KeyGroup(group) for group in groups]

        def is_idle() -> bool:
            return not any(self.machine.is_busy(operator, group, shadows) for group in wanted)

        with self.changed:
            if not self.changed.wait_for(is_idle, timeout_seconds):
                raise ServiceUnavailable(
                    f"A transaction on worker {self.config.worker} did not end within "
                    f"{timeout_seconds:.0f} s."
                )

    def wait_quiet(self, seconds_max: float) -> None:
        """Wait until no transaction is open here, at most so long."""
        with self.changed:
            self.changed.wait_for(lambda: not self.running, seconds_max)

    # -- helpers --

    def slot(self, operator: str, definition: int | None = None) -> OperatorSlot:
        """An operator; the caller must mean the same definition of it."""
        slot = self.slots.get(operator)
        if slot is None or (definition is not None and slot.definition_id != definition):
            raise ServiceUnavailable(
                f"Worker {self.config.worker} has another definition of operator "
                f"'{operator}' than this task; the task asks again."
            )
        return slot

    def count(self, counted: Mapping[str, int]) -> None:
        """Add to the totals."""
        with self._counters_lock:
            self.counters.update(counted)

    def note_commit(self, operator: str, epoch: int) -> None:
        """An epoch exists."""
        slot = self.slots.get(operator)
        if slot is not None:
            slot.committed = max(epoch, -1 if slot.committed is None else slot.committed)

    def write(self, path: str, epoch: int, groups: Iterable[int], buffers: list[Any]) -> str:
        """Write a state file; the reference for the manifest."""
        self.blobs.write(path, buffers)
        return file_ref(path, epoch, buffers, groups).text()

    def state_bytes(self) -> int:
        """Memory of all state, about."""
        with self.changed:
            slots = list(self.slots.values())
        # Loads add to it while this counts.
        return sum(state.num_bytes for slot in slots for state in list(slot.states.values()))

    def heat(self, operator: str) -> str | None:
        """Recent rows of key groups that are owned here; None: the operator is not known."""
        with self.changed:
            slot, owned = self.slots.get(operator), list(self.machine.granted)
        return None if slot is None else encode_heat(slot.heat_of(owned))

    def next_snapshot_id(self) -> int:
        """For unique file names."""
        return next(self._snapshot_ids)

    def pass_point(self, point: str) -> None:
        """Die here if a test wants it."""
        number = self.config.incarnation.rpartition("-")[2]
        crash_point(self.config.worker + (f".{number}" if number != "0" else ""), point)
