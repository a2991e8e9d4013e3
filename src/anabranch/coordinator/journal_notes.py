"""What the coordinator's parts tell the journal: each thing that happens, as an entry."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from anabranch.coordinator.calls import STATUS_SECONDS_MAX, ask_all
from anabranch.coordinator.journal import Note
from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.move_request import MoveWish
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.durability.savepoint import Savepoint
from anabranch.model.ids import WorkerId
from anabranch.model.journal_entry import EntryKind
from anabranch.model.ownership import changes, whole
from anabranch.model.query_reports import BatchReport
from anabranch.model.routing import Routing
from anabranch.model.stats import TIMES
from anabranch.processes.worker_pool import WorkerPool
from anabranch.transport.messages.control import Status, UserCall, WorkerStatus
from anabranch.transport.messages.lanes import LaneFailed

LOAD_SECONDS = 15.0
"""Between two looks at how busy workers are, while batches run."""
WHOLE_SECONDS = 600.0
"""All owners are noted so often: who reads from some time on need not look back further."""
SECONDS_A_WORKER = 0.1
"""More between two looks for each worker: many are asked less often."""

BUSIEST_SHOWN = 4
SPARK_COLUMNS = ("epoch", "run_ms", "plan_ms", "commit_ms")
APPLYING = "applying"

_COLUMNS = {"rows": "rows_input", **{name: name for name in TIMES}}
"""Of a batch: fields of an entry, and what they are called in its statistics."""


def no_note(kind: EntryKind, **fields: Any) -> None:
    """There is no journal."""


class JournalNotes:
    """Turns what happens into entries."""

    def __init__(self, note: Note = no_note) -> None:
        self._note = note
        self._sampled = time.monotonic()
        self._pool: WorkerPool | None = None
        self._sampling = threading.Lock()
        self._routing: Callable[[], Routing] | None = None
        self.spark: Callable[[], Mapping[str, Sequence[BatchReport]]] = dict
        """What Spark tells of the last batches, by operator."""
        self._told: dict[str, int] = {}
        """The last of these batches that was noted."""
        self._noted: Routing | None = None
        self._whole_at = 0.0
        self._noting = threading.Lock()

    def of(self, pool: WorkerPool, routing: Callable[[], Routing] | None = None) -> JournalNotes:
        """These are the workers that are asked what they do, and who owns what."""
        self._pool, self._routing = pool, routing
        return self

    def ownership(self) -> None:
        """Note who owns which key group, if that has changed or was not said for long."""
        if self._routing is None:
            return
        now = time.monotonic()
        with self._noting:
            routing, before = self._routing(), self._noted
            if before is None or now - self._whole_at >= WHOLE_SECONDS:
                self._whole_at, details = now, whole(routing)
                text = f"{len(routing.owners)} key groups, {len(details['workers'])} owners"
            elif routing.version == before.version:
                return
            else:
                details = changes(before, routing)
                moved = sum(map(len, details["gained"].values()))
                text = f"{moved} key groups to {', '.join(details['gained']) or 'nobody'}"
            self._noted = routing
            self._note(EntryKind.OWNERSHIP, text=text, details=details)

    def batch(self, operator: OperatorRecord, epoch: int) -> None:
        """An epoch exists."""
        fields: dict[str, Any] = {"operator": operator.name, "epoch": epoch}
        timing = operator.timings[-1] if operator.timings else None
        if timing is not None and timing.epoch == epoch:
            stats = timing.stats
            fields["seconds"] = timing.seconds
            fields.update((column, stats.get(stat, 0)) for column, stat in _COLUMNS.items())
            known = _COLUMNS.values()
            fields["details"] = {n: v for n, v in stats.items() if v and n not in known}
        self._note(EntryKind.BATCH, **fields)
        self.ownership()
        self._look_at_load()

    def batch_failed(self, failed: LaneFailed, line: str) -> None:
        """A lane has ended with an error."""
        about = {"operator": failed.operator, "epoch": failed.epoch}
        self._note(EntryKind.BATCH_FAILED, **about, text=line)

    def worker_started(self, worker: WorkerId, incarnation: int) -> None:
        """A process has all definitions."""
        about: dict[str, Any] = {"incarnation": incarnation}
        if self._pool is not None:
            about["pid"] = self._pool.pids().get(worker)
            about["host"] = self._pool.hosts().get(worker)
        self._note(EntryKind.WORKER_STARTED, worker=worker, details=about)

    def worker_ended(self, worker: WorkerId, incarnation: int, reason: str) -> None:
        """A process is gone that was not told to go."""
        about = {"incarnation": incarnation}
        self._note(EntryKind.WORKER_ENDED, worker=worker, text=reason, details=about)

    def user_code_stuck(self, worker: WorkerId, call: UserCall, line: str) -> None:
        """A call does not come back."""
        about = {"operator": call.operator, "epoch": call.epoch, "seconds": call.seconds}
        told = {name: getattr(call, name) for name in ("number", "method", "key", "stack")}
        self._note(EntryKind.USER_CODE_STUCK, worker=worker, **about, text=line, details=told)

    def user_code_back(self, worker: WorkerId, call: UserCall, seconds: float, line: str) -> None:
        """One that was told of came back."""
        about = {"operator": call.operator, "epoch": call.epoch, "seconds": round(seconds, 1)}
        told = {"number": call.number, "method": call.method, "key": call.key}
        self._note(EntryKind.USER_CODE_BACK, worker=worker, **about, text=line, details=told)

    def move_started(self, move: MoveHandle, wish: MoveWish) -> None:
        """A reconfiguration was asked for."""
        before, after = move.workers_before, move.workers_after
        self._note(
            EntryKind.MOVE_STARTED,
            text=f"{move.strategy}: {len(before)} -> {len(after)} workers",
            details={
                "number": move.number,
                "cause": move.cause,
                "strategy": move.strategy,
                "workers_before": before,
                "workers_after": after,
                "options": dict(wish.options),
                "bytes_per_second": wish.bytes_per_second,
            },
        )

    def move_ended(self, move: MoveHandle) -> None:
        """A reconfiguration is over, well or not."""
        self.ownership()
        report = move.report()
        pause = f"{1000 * report.pause_seconds:.0f} ms"
        plain = report.as_json()
        del plain["batches"]  # they have entries of their own
        self._note(
            EntryKind.MOVE_ENDED,
            seconds=report.seconds,
            bytes=report.bytes,
            rows=report.rows_forwarded,
            text=f"{report.strategy}: {report.outcome}, {report.groups} key groups moved, "
            f"longest pause {pause}",
            details={"number": move.number, "cause": move.cause, **plain},
        )

    def savepoint(self, made: Savepoint) -> None:
        """A savepoint exists."""
        self._note(EntryKind.SAVEPOINT, bytes=made.bytes, text=made.name)

    def autoscale(self, told: Mapping[str, Any]) -> None:
        """A decision, as plain values."""
        what = f"{told['action']} ({told['rule']})" if told["to"] is None else f"-> {told['to']}"
        text = f"{told['workers']} workers, {what}: {told['reason']}"
        self._note(EntryKind.AUTOSCALE, operator=told["query"] or None, text=text, details=told)

    def _look_at_load(self) -> None:
        """After a batch, now and then, in a thread: batches do not wait for it."""
        pool, now = self._pool, time.monotonic()
        if (
            pool is None
            or now - self._sampled < LOAD_SECONDS
            or not self._sampling.acquire(blocking=False)
        ):
            return
        self._sampled = now

        def sample() -> None:
            try:
                found = ask_all(pool.peers(), Status(), STATUS_SECONDS_MAX)
                self._note(EntryKind.LOAD, text=_busiest(found), details=_load(found))
                self._note_spark()
                self._sampled = time.monotonic() + SECONDS_A_WORKER * len(found)
            finally:
                self._sampling.release()

        threading.Thread(target=sample, name="anabranch-load", daemon=True).start()

    def _note_spark(self) -> None:
        """What Spark took for batches that it has ended since the last look."""
        for operator, reports in self.spark().items():
            seen = self._told.get(operator, -1)
            fresh = [report for report in reports if report.epoch > seen]
            if not fresh:
                continue
            self._told[operator] = fresh[-1].epoch
            columns = {name: [getattr(each, name) for each in fresh] for name in SPARK_COLUMNS}
            text = f"batches {fresh[0].epoch} to {fresh[-1].epoch}"
            self._note(EntryKind.SPARK, operator=operator, text=text, details=columns)


def about_service(workers: int, key_groups: int, checkpoint: str) -> dict[str, Any]:
    """Fields of the entry for a service that begins."""
    details = {
        "workers": workers,
        "key_groups": key_groups,
        "checkpoint": checkpoint,
        "anabranch": version("anabranch"),
        "pyspark": version("pyspark"),
        "python": platform.python_version(),
    }
    return {"text": f"{workers} workers, {key_groups} key groups", "details": details}


def _busiest(found: Mapping[WorkerId, WorkerStatus]) -> str:
    """Who has applied longest so far."""
    seconds = {
        worker: sum(each.busy_seconds.get(APPLYING, 0.0) for each in status.operators.values())
        for worker, status in found.items()
    }
    first = sorted(seconds, key=lambda worker: -seconds[worker])[:BUSIEST_SHOWN]
    return "applying so far: " + ", ".join(f"{worker} {seconds[worker]:.1f} s" for worker in first)


def _load(found: Mapping[WorkerId, WorkerStatus]) -> dict[str, Any]:
    return {
        worker: {
            "resident_bytes": status.resident_bytes,
            "operators": {
                name: {
                    "rows": each.rows,
                    "bytes": each.bytes,
                    "busy_seconds": {what: round(s, 3) for what, s in each.busy_seconds.items()},
                }
                for name, each in status.operators.items()
            },
        }
        for worker, status in found.items()
    }
