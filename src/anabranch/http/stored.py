"""A service that does not run, as its location tells of it: for a page that looks back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.durability.journal import JournalContent, JournalFolder
from anabranch.durability.savepoint import Savepoint, list_savepoints
from anabranch.durability.store import StateStore
from anabranch.errors import ServiceUnavailable
from anabranch.http.controlled import Listener
from anabranch.http.stored_state import StoredState
from anabranch.http.tape import BACK_SECONDS
from anabranch.model.journal_entry import EntryKind
from anabranch.model.ownership import Owned, by_number

BATCHES_SHOWN = 100
DECISIONS_SHOWN = 50


class StoredService:
    """Fits `ControlledService`; everything that would change something is refused."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._journal = JournalFolder(store.blobs)
        end = self._journal.read().alive_at or 0.0
        self.end = end
        """When the last service lived for sure."""
        last = self._journal.read(since=end - BACK_SECONDS)
        self._rows = last.rows()
        self._owned = Owned.of(row["details"] for row in self._of(EntryKind.OWNERSHIP))

    def _of(self, kind: EntryKind) -> list[dict[str, Any]]:
        return [row for row in self._rows if row["kind"] == kind.value]

    def status(self) -> dict[str, Any]:
        """As it was when it ended."""
        loads = self._of(EntryKind.LOAD)
        load: dict[str, Any] = loads[-1]["details"] if loads else {}
        workers = sorted({*self._owned.owners, *load}, key=by_number)
        return {
            "routing_version": self._owned.version,
            "key_groups": len(self._owned.owners),
            "workers": {worker: self._worker(worker, load.get(worker, {})) for worker in workers},
            "operators": {name: self._operator(name, load) for name in self._store.operators()},
            "reconfiguration": None,
        }

    def _worker(self, worker: str, load: dict[str, Any]) -> dict[str, Any]:
        held = load.get("operators", {})
        return {
            "status": "gone",
            "restarts": 0,
            "pid": None,
            "host": None,
            "stuck": None,
            "key_groups": self._owned.owners.count(worker),
            "rows": sum(each["rows"] for each in held.values()),
            "bytes": sum(each["bytes"] for each in held.values()),
            "resident_bytes": load.get("resident_bytes"),
            "busy_seconds": {name: each["busy_seconds"] for name, each in held.items()},
        }

    def _operator(self, name: str, load: dict[str, Any]) -> dict[str, Any]:
        held = [each["operators"].get(name, {}) for each in load.values()]
        batches = [row for row in self._of(EntryKind.BATCH) if row.get("operator") == name]
        return {
            "last_epoch": self._store.latest_epoch(name),
            "rows": sum(each.get("rows", 0) for each in held),
            "bytes": sum(each.get("bytes", 0) for each in held),
            "in_memory": None,
            "hit_rate": None,
            "batches": [_batch(row) for row in batches[-BATCHES_SHOWN:]],
        }

    def source_lag_rows(self) -> dict[str, int]:
        """No query runs that could tell."""
        return {}

    def key_groups(self) -> list[dict[str, Any]]:
        """Owners; loads of single key groups are in no journal."""
        return [
            {"group": group, "owner": owner, "rows": 0, "bytes": 0}
            for group, owner in enumerate(self._owned.owners)
        ]

    def ownership(self) -> dict[str, Any]:
        """As it was when it ended."""
        workers = sorted(set(self._owned.owners), key=by_number)
        owners = [workers.index(owner) for owner in self._owned.owners]
        version = self._owned.version
        return {"version": version, "workers": workers, "owners": owners, "moving": []}

    def rescale(self, workers: int, **how: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def move(self, key_groups: Sequence[int], to: str, **how: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def place(self, site: str, on: str | None, **how: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def drain(self, worker: str | None = None, *, host: str | None = None, **how: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def rebalance(self, **how: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def standby(self, workers: int, **how: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def autoscale(self, **settings: Any) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def autoscaler(self, limit: int = DECISIONS_SHOWN) -> dict[str, Any]:
        """What was decided last; settings are not in the journal."""
        decisions = [row["details"] for row in self._of(EntryKind.AUTOSCALE)]
        return {"settings": {}, "decisions": decisions[-limit:]}

    def savepoint(self, name: str) -> NoReturn:
        """Nothing runs."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ServiceUnavailable(
            f"No service runs on {self._store.blobs.location}: this is what its journal tells. "
            "Start the service, then ask it."
        )

    def recent_moves(self) -> list[MoveHandle]:
        """They are in the journal."""
        return []

    def savepoints(self) -> list[Savepoint]:
        """All savepoints of the location."""
        return list_savepoints(self._store.blobs)

    def state(self, operator: str, variable: str | None = None) -> StoredState:
        """Keys as of the last committed batch."""
        return StoredState(self._store.blobs, operator, variable, self._owned.owners)

    def history(self, since: float | None = None, until: float | None = None) -> JournalContent:
        """Entries of the journal."""
        return self._journal.read(since, until)

    def spark_batches(self) -> dict[str, Any]:
        """No query runs."""
        return {}

    def stop(self) -> None:
        """It has ended already."""

    def on_entry(self, listener: Listener) -> None:
        """Nothing happens any more."""


def _batch(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: row.get(name, 0) for name in ("load_ms", "wait_ms", "apply_ms", "write_ms")}
    seconds = row.get("seconds")
    return {
        "epoch": row["epoch"],
        "started": row["time"].timestamp() - (seconds or 0.0),
        "seconds": seconds,
        "stats": {**(row.get("details") or {}), **times, "rows_input": row.get("rows", 0)},
    }
