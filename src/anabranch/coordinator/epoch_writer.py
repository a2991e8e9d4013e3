"""Writes the manifest of an epoch: the file that makes it exist."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from anabranch.coordinator.maintenance import Maintenance
from anabranch.coordinator.operator_record import OperatorRecord, written_files
from anabranch.durability.heat import kept_heat
from anabranch.durability.manifest import Manifest, next_manifest
from anabranch.durability.store import StateStore
from anabranch.model.keyspace import KeySpace
from anabranch.processes.crash_points import crash_point
from anabranch.protocol.coordinator import CoordinatorMachine, WriteManifest


class EpochWriter:
    """Call it with the store's lock taken."""

    def __init__(
        self,
        store: StateStore,
        maintenance: Maintenance,
        machine: CoordinatorMachine,
        operators: Mapping[str, OperatorRecord],
        keyspace: KeySpace,
        checkpoint: str,
    ) -> None:
        self._store = store
        self._maintenance = maintenance
        self._machine = machine
        self._operators = operators
        self._keyspace = keyspace
        self._checkpoint = checkpoint

    def write(self, effect: WriteManifest) -> Manifest:
        """Make an epoch exist."""
        # 1. What the epoch starts from; 2. its changes and finished snapshots; 3. it exists.
        previous = self._store.before(effect.operator, effect.base)
        manifest = self._manifest(previous, effect)
        crash_point("coordinator", "before-lists")
        self._store.commit(manifest, partial(crash_point, "coordinator"))
        return manifest

    def _manifest(self, previous: Manifest | None, effect: WriteManifest) -> Manifest:
        operator = self._operators[effect.operator]
        changelogs, full = written_files(effect.operator, effect.transactions)
        taken = self._maintenance.snapshots_before(effect.operator, effect.epoch)
        heat = self._maintenance.heat(effect.operator)
        notes = operator.notes(effect.epoch, self._checkpoint, effect.transactions)
        return next_manifest(
            previous,
            effect.epoch,
            changelogs,
            [*(ref for ref in taken if self._store.accepts(effect.operator, ref)), *full],
            operator=effect.operator,
            query_id=self._machine.operators[effect.operator].query_id,
            keyspace=self._keyspace,
            description=operator.definition.description,
            extra={**kept_heat(previous, heat), **notes},
            committed_at=int(time.time() * 1000),
        )
