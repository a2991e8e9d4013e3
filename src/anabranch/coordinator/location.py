"""The state location of a service, opened."""

from __future__ import annotations

import logging

from anabranch.durability.blobs import BlobStore
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.model.keyspace import KeySpace
from anabranch.processes.crash_points import crash_point

_log = logging.getLogger("anabranch.service")


def open_store(location: str, fsync: bool, shared: bool) -> StateStore:
    """Hold a location; nobody else does."""
    store = StateStore(BlobStore(location, fsync=fsync, shared=shared))
    if warning := store.access_warning(shared):
        _log.warning("%s", warning)
    return store.open()


def restored(store: StateStore, savepoint: str | None, keyspace: KeySpace) -> None:
    """Start from a savepoint, if the location is new."""
    restore_savepoint(store, savepoint, keyspace, lambda step: crash_point("driver", step))
