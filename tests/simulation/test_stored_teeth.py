"""Key groups that are partly in the store: the checker finds every mutation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.model.ids import KeyGroup
from anabranch.protocol import residency
from anabranch.protocol import worker as protocol
from anabranch.protocol.residency import may_evict
from anabranch.simulation import store_loader
from anabranch.simulation.oracle import OPERATOR
from anabranch.simulation.runner import run_seeds
from anabranch.simulation.store_loader import Stored

SEEDS = range(4, 8_000, 10)
"""Those whose key groups are read in parts and evicted."""

Patch = Callable[[pytest.MonkeyPatch], None]


def due_timers_stay_in_the_store(patch: pytest.MonkeyPatch) -> None:
    """A transaction reads the keys of its rows only."""
    parcel = Stored._parcel

    def without_due(self: Stored, effect: Any, group: KeyGroup, missing: Any) -> Any:
        found = parcel(self, effect, group, missing)
        rows = self.process.exchanges[effect.tx].rows.get(group, [])
        keys = frozenset(key for key, _, _ in rows) & found.keys
        entries = {key: value for key, value in found.entries.items() if key in keys}
        return type(found)(found.kind, found.as_of, entries, found.bins, keys)

    patch.setattr(Stored, "_parcel", without_due)


def evicted_passes_for_the_whole(patch: pytest.MonkeyPatch) -> None:
    """The protocol does not hear that something has left memory."""
    patch.setattr("anabranch.protocol.worker.evicted", lambda machine, event: None)


def parts_pass_for_the_whole(patch: pytest.MonkeyPatch) -> None:
    """The protocol forgets that the rest is in the store."""

    def loaded(machine: Any, tx: Any, event: protocol.GroupsLoaded) -> None:
        for group in tx.loading:
            machine.arrivals.end(OPERATOR, group)
            machine.held[OPERATOR][group] = protocol.HeldGroup(tx.opened.base)
        tx.loading = ()

    patch.setattr("anabranch.protocol.worker.loaded", loaded)


def uncommitted_changes_are_evicted(patch: pytest.MonkeyPatch) -> None:
    """What no manifest has leaves memory."""

    def may(self: Stored, group: KeyGroup) -> bool:
        as_of = self.process.machine.held[OPERATOR][group].as_of
        return as_of is not None and may_evict(self.process.machine, OPERATOR, group, as_of)

    patch.setattr(Stored, "_may_evict", may)


def keys_are_read_as_of_when_they_were_left(patch: pytest.MonkeyPatch) -> None:
    """Evicted again, a key group still counts as of its first eviction."""
    evict = residency.evicted

    def keep_origin(machine: Any, event: protocol.GroupsEvicted) -> None:
        ((group, _),) = event.groups
        before = machine.arrivals.find(OPERATOR, group)
        origin = None if before is None else before.origin
        evict(machine, event)
        if before is not None:
            machine.arrivals.groups[OPERATOR][group].origin = origin

    patch.setattr("anabranch.protocol.worker.evicted", keep_origin)


def busy_key_groups_are_evicted(patch: pytest.MonkeyPatch) -> None:
    """Bins leave memory under a transaction."""
    patch.setattr(store_loader, "may_evict", _may_evict_anything)
    patch.setattr(residency, "may_evict", _may_evict_anything)


def _may_evict_anything(machine: Any, operator: str, group: KeyGroup, epoch: Any) -> bool:
    record = machine.arrivals.find(operator, group)
    is_stored = record is None or record.phase is protocol.Residency.STORED
    return machine.owners.is_owner(group) and is_stored


def transactions_do_not_take_their_key_groups(patch: pytest.MonkeyPatch) -> None:
    """Parts are put in place while a transaction reads the same keys."""
    patch.setattr(residency, "is_taken", lambda machine, operator, group: False)


MUTATIONS: list[Patch] = [
    due_timers_stay_in_the_store,
    evicted_passes_for_the_whole,
    parts_pass_for_the_whole,
    uncommitted_changes_are_evicted,
    keys_are_read_as_of_when_they_were_left,
    busy_key_groups_are_evicted,
    transactions_do_not_take_their_key_groups,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_found(mutation: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    summary = run_seeds(SEEDS)
    assert not summary.is_ok, f"{mutation.__name__} was not found in {len(SEEDS)} seeds"


def test_the_store_is_at_work() -> None:
    summary = run_seeds(SEEDS[:100])
    assert summary.is_ok
    for mechanism in ("keys_from_store", "bins_from_store", "groups_evicted"):
        assert sum(n for name, n in summary.counts.items() if name.endswith(mechanism)), mechanism
