"""The part of the service with which users save state under a name."""

from __future__ import annotations

import threading
from collections.abc import Collection

from anabranch.coordinator.coordinator import Coordinator
from anabranch.durability.savepoint import (
    Savepoint,
    create_savepoint,
    list_savepoints,
    retired,
)
from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.durability.store import StateStore
from anabranch.processes.crash_points import crash_point


class ServiceSavepoints:
    """savepoint, savepoints."""

    _store: StateStore
    _saving: threading.Lock

    def _running_coordinator(self) -> Coordinator:
        raise NotImplementedError

    def _running_checkpoints(self) -> list[SparkCheckpoint]:
        """Of the running queries."""
        raise NotImplementedError

    def savepoint(self, name: str, *, checkpoints: Collection[str] = ()) -> Savepoint:
        """Save the state of all operators under a name while queries run. It stays until deleted.

        The savepoint has all operators of a query as of the last batch that Spark committed. Of a
        running query it has Spark's offsets too. For a query that does not run, give its
        `checkpointLocation` in `checkpoints`.
        """
        coordinator = self._running_coordinator()
        given = [SparkCheckpoint(location) for location in checkpoints]
        running = self._running_checkpoints()
        known = {checkpoint.query_id: checkpoint for checkpoint in (*running, *given)}
        with self._saving:
            with coordinator.store_lock:
                without = retired(self._store, coordinator.operators)
            made = create_savepoint(
                self._store,
                coordinator.store_lock,
                name,
                list(known.values()),
                lambda step: crash_point("driver", step),
                without,
            )
        coordinator.notes.savepoint(made)
        return made

    def savepoints(self) -> list[Savepoint]:
        """List the savepoints in this location, the oldest first."""
        return list_savepoints(self._store.blobs)
