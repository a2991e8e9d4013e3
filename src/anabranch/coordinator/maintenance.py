"""Background work after each commit: snapshots in the workers, garbage collection in the store."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from anabranch.coordinator.calls import COMMITTED_SECONDS_MAX
from anabranch.coordinator.few_threads import in_few_threads
from anabranch.durability.heat import merged_heat
from anabranch.durability.manifest import FileRef, with_snapshots
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, WorkerId
from anabranch.processes.worker_pool import WorkerPool
from anabranch.transport.client import Peer
from anabranch.transport.messages.control import Committed

_log = logging.getLogger("anabranch.maintenance")

RETAINED_EPOCHS = 10
GARBAGE_EPOCHS = 16
"""Garbage is collected every so many epochs."""


@dataclass(slots=True)
class FinishedSnapshot:
    """A snapshot file and the first manifest that lists it."""

    ref: FileRef
    listed_in: int | None = None


class Maintenance:
    """One thread that never delays a batch."""

    def __init__(
        self,
        store: StateStore,
        store_lock: threading.Lock,
        pool: WorkerPool,
        is_moving: Callable[[], bool],
        bins: int,
    ) -> None:
        self._store = store
        self._store_lock = store_lock
        self._pool = pool
        self._is_moving = is_moving
        self._bins = bins
        self._heat: dict[str, str] = {}
        self._snapshots: dict[str, list[FinishedSnapshot]] = {}
        self._collected: dict[str, int] = {}
        """Epoch of each operator when its garbage was collected last."""
        self._lock = threading.Lock()
        self._commits: queue.SimpleQueue[tuple[str, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="anabranch-maintenance", daemon=True)
        self._thread.start()

    def after_commit(self, operator: str, epoch: int) -> None:
        """An epoch exists now."""
        self._commits.put((operator, epoch))

    def snapshots_before(self, operator: str, epoch: int) -> list[FileRef]:
        """Finished snapshots that the manifest of `epoch` may list: of epochs committed before it.

        A listed snapshot is handed on from manifest to manifest. It stays known here until a later
        epoch is written, since `epoch` itself may be executed again.
        """
        with self._lock:
            known = self._snapshots.get(operator, [])
            kept = [
                entry
                for entry in known
                if entry.listed_in in (None, epoch) and entry.ref.epoch < epoch
            ]
            for entry in kept:
                entry.listed_in = epoch
            self._snapshots[operator] = kept
            return [entry.ref for entry in kept]

    def heat(self, operator: str) -> str | None:
        """What was hot after one of the last epochs, for the next manifest."""
        with self._lock:
            return self._heat.get(operator)

    def keep(self, operator: str, snapshots: Iterable[str]) -> None:
        """Snapshots that were taken for another reason count as well."""
        taken = [FileRef.from_json(json.loads(text)) for text in snapshots]
        with self._lock:
            known = self._snapshots.setdefault(operator, [])
            known.extend(FinishedSnapshot(ref) for ref in taken)

    def publish(self, operator: str, snapshots: Collection[str]) -> None:
        """Snapshots of the last epoch take the place of older files at once."""
        taken = [FileRef.from_json(json.loads(text)) for text in snapshots]
        with self._store_lock:
            last = self._store.epochs(operator)[-1]
            fitting = [ref for ref in taken if ref.epoch == last]
            if fitting:
                manifest = self._store.manifest(operator, last)
                self._store.commit(with_snapshots(manifest, fitting))
        self.keep(operator, snapshots)

    def stop(self, seconds_max: float) -> None:
        """Finish what runs and end the thread; wait so long for it."""
        self._commits.put(None)
        self._thread.join(seconds_max)

    def _run(self) -> None:
        newest: dict[str, int] = {}
        while True:
            # Of each operator only the newest commit: its snapshots are worth most.
            while not newest or not self._commits.empty():
                commit = self._commits.get()  # no limit: stop() ends it
                if commit is None:
                    return
                newest[commit[0]] = commit[1]
            operator = next(iter(newest))
            epoch = newest.pop(operator)
            try:
                self._tell_workers(operator, epoch)
                self._collect_garbage(operator, epoch)
            except AnabranchError as error:
                _log.warning("Maintenance after batch %s failed: %s", epoch, error)
            except Exception:  # the next commit needs this thread
                _log.exception("Maintenance after batch %s failed", epoch)

    def _tell_workers(self, operator: str, epoch: int) -> None:
        """All at once: what they do needs state of this epoch, and the next one begins soon."""
        message = Committed(operator, Epoch(epoch), self._is_moving())
        heat: list[str | None] = []

        def tell(worker: WorkerId, peer: Peer) -> None:
            note = None
            try:
                reply = peer.call_patiently(message, COMMITTED_SECONDS_MAX)
                self.keep(operator, reply.snapshots)
                note = reply.heat
            except AnabranchError as error:  # the others are not concerned
                _log.warning("Worker %s after batch %s: %s", worker, epoch, error)
            except Exception:
                _log.exception("Worker %s after batch %s", worker, epoch)
            heat.append(note)

        peers = self._pool.peers().items()
        in_few_threads("anabranch-committed", [partial(tell, *peer) for peer in peers])
        notes = [note for note in heat if note is not None]
        if len(notes) == len(heat):
            with self._lock:
                self._heat[operator] = merged_heat(notes, self._bins)

    def _collect_garbage(self, operator: str, epoch: int) -> None:
        if epoch - self._collected.get(operator, 0) < GARBAGE_EPOCHS:
            return
        with self._store_lock:
            expired = self._store.expire(operator, RETAINED_EPOCHS)
        expired.sweep()  # may take long, and commits need the lock
        self._collected[operator] = epoch
