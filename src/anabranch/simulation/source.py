"""The source's side of a move: frozen state on request, slices and deltas of what goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.migration.steps import Arrival
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol import worker as protocol
from anabranch.simulation.oracle import OPERATOR, Changes, KeyStates
from anabranch.simulation.parcels import (
    ALL_BINS,
    CopyJournal,
    ParcelKind,
    SimulatedParcel,
    Want,
    bin_of,
)

if TYPE_CHECKING:
    from anabranch.simulation.calls import SimulatedCall
    from anabranch.simulation.worker import WorkerProcess


class Source:
    """What one process gives to others."""

    __slots__ = ("given", "journals", "process", "session_count")

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.journals: dict[KeyGroup, dict[WorkerId, CopyJournal]] = {}
        self.session_count = 1000 * process.version
        """Never used twice, also not by the process that replaces this one (`worker.DeltaLogs`)."""
        self.given: dict[KeyGroup, int] = {}
        """Version at which a key group was given away: its state must not change any more."""

    # -- what happens to the state --

    def changed(self, group: KeyGroup, epoch: int, changes: Changes) -> None:
        """A transaction is durable."""
        for journal in self.journals.get(group, {}).values():
            journal.log.append((epoch, changes))

    def replaced(self, group: KeyGroup) -> None:
        """The state was read anew, or dropped: no delta leads to it."""
        self.journals.pop(group, None)

    def regained(self, groups: tuple[KeyGroup, ...]) -> None:
        """Key groups were granted again."""
        for group in groups:
            if self.process.machine.granted.get(group, 0) > self.given.get(group, 0):
                self.given.pop(group, None)

    # -- handshake and import --

    def fetch(self, call: SimulatedCall, wants: list[Want]) -> None:
        """Give key groups away: own them no longer, finish what runs, then answer."""
        process = self.process
        for want in wants:
            release = protocol.GroupsReleased((want.group,), want.version, call.caller.worker)
            process.handle(release)
        # Not for those that are owned here: their transactions may wait for the one who asks.
        owners = process.machine.owners
        groups = [want.group for want in wants if not owners.is_owner(want.group)]
        process.when_idle(groups, lambda: self._answer(call, wants))

    def _answer(self, call: SimulatedCall, wants: list[Want]) -> None:
        call.answer([self._parcel(call.caller.worker, want) for want in wants])

    def _parcel(self, target: WorkerId, want: Want) -> SimulatedParcel | None:
        machine, group = self.process.machine, want.group
        held = machine.held.get(OPERATOR, {}).get(group)
        if held is None or held.is_partial or self._refuses(group):
            return None
        if not want.any_epoch and held.as_of != want.as_of:
            return None
        self.given[group] = want.version
        state = self.process.memory[group]
        if want.replica is not None:
            delta = self._delta(group, target, want.replica)
            if delta is not None:
                return delta
        if want.mode is Arrival.KEY:
            keys = want.keys | _due(state, want)
            entries: Changes = {key: state.get(key) for key in keys}
            return SimulatedParcel(ParcelKind.PART, held.as_of, entries, frozenset(), keys)
        if want.mode is Arrival.BIN or want.bins != ALL_BINS:
            bins = want.bins | {bin_of(key) for key in _due(state, want)}
            found: Changes = {k: v for k, v in state.items() if bin_of(k) in bins}
            return SimulatedParcel(ParcelKind.PART, held.as_of, found, bins)
        return SimulatedParcel(ParcelKind.FULL, held.as_of, dict(state))

    def _refuses(self, group: KeyGroup) -> bool:
        return self.process.machine.owners.is_owner(group)

    # -- copies --

    def slice(
        self, call: SimulatedCall, group: KeyGroup, number: int, session: int, version: int
    ) -> None:
        """One slice of a copy; the first one starts to keep changes."""
        self.process.when_idle([group], lambda: self._slice(call, group, number, session, version))

    def _slice(
        self, call: SimulatedCall, group: KeyGroup, number: int, session: int, version: int
    ) -> None:
        process, target = self.process, call.caller.worker
        held = process.machine.held.get(OPERATOR, {}).get(group)
        if held is None or held.is_partial or process.cleaned.get(group, process.version) > version:
            call.answer(None)
            return
        if not number:
            self.session_count += 1
            session = self.session_count
            self.journals.setdefault(group, {})[target] = CopyJournal(
                session, held.as_of, call.caller.name
            )
        journal = self.journals.get(group, {}).get(target)
        if journal is None or journal.session != session:
            call.answer(None)
            return
        state = process.memory[group]
        call.answer(
            (session, journal.start, {k: v for k, v in state.items() if bin_of(k) == number})
        )

    def delta(self, call: SimulatedCall, group: KeyGroup, replica: tuple[int, int | None]) -> None:
        """What has changed since a replica's epoch."""
        target = call.caller.worker
        self.process.when_idle([group], lambda: call.answer(self._delta(group, target, replica)))

    def _delta(
        self, group: KeyGroup, target: WorkerId, replica: tuple[int, int | None]
    ) -> SimulatedParcel | None:
        """None: the replica does not lead to what is here."""
        journal = self.journals.get(group, {}).get(target)
        held = self.process.machine.held.get(OPERATOR, {}).get(group)
        session, as_of = replica
        if journal is None or journal.session != session or held is None or held.is_partial:
            return None
        if _order(as_of) < _order(journal.start) or _order(as_of) > _order(held.as_of):
            return None
        return SimulatedParcel(ParcelKind.DELTA, held.as_of, journal.since(as_of))

    def epochs(self, call: SimulatedCall, groups: tuple[KeyGroup, ...]) -> None:
        """As of which epoch key groups are here."""
        held = self.process.machine.held.get(OPERATOR, {})
        call.answer({g: held[g].as_of for g in groups if g in held})

    def forget(self, groups: tuple[KeyGroup, ...], target: WorkerId | None) -> None:
        """Keep no changes for a target."""
        for group in groups:
            kept = self.journals.get(group)
            if kept is not None and target is not None:
                kept.pop(target, None)
                if not kept:
                    del self.journals[group]


def _order(as_of: int | None) -> int:
    return -1 if as_of is None else as_of


def _due(state: KeyStates, want: Want) -> frozenset[int]:
    """Keys with a timer that fires in the batch."""
    return frozenset(k for k, (_, due) in state.items() if due is not None and due <= want.epoch)
