"""What a location could be restored to just now: epochs, files, savepoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.durability.store import StateStore
from anabranch.errors import LocationError


def recovery(blobs: BlobStore, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each operator; read from the location, `status` adds what is in memory."""
    store = StateStore(blobs).look()
    return [_operator(store, name, status) for name in store.operators()]


def _operator(store: StateStore, name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    epochs = store.epochs(name)
    running = status["operators"].get(name, {})
    found: dict[str, Any] = {
        "operator": name,
        "epochs": epochs,
        "in_memory": running.get("in_memory"),
        "hit_rate": running.get("hit_rate"),
    }
    try:
        manifest = store.last(name)
    except LocationError:  # the service went on and has removed it: look again soon
        manifest = None
    if manifest is None:
        return found
    snapshots, changelogs = manifest.snapshots, manifest.changelogs
    return {
        **found,
        "last_epoch": manifest.epoch,
        "committed_at": manifest.committed_at / 1000,
        "snapshots": {"files": len(snapshots), "bytes": sum(ref.bytes for ref in snapshots)},
        "changelogs": {"files": len(changelogs), "bytes": sum(ref.bytes for ref in changelogs)},
    }
