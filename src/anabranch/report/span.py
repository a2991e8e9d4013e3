"""A span of time in a service's life, sorted into what pictures and tables show."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from anabranch.model.journal_entry import EntryKind

Row = Mapping[str, Any]
"""An entry of the journal as plain values."""

OFTEN = (EntryKind.BATCH.value, EntryKind.LOAD.value)
BAD = (EntryKind.WORKER_ENDED.value, EntryKind.BATCH_FAILED.value, EntryKind.LOST.value)
PHASES = ("load", "wait", "apply", "write")
APPLYING = "applying"
MIB = 2**20


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """A batch that has ended."""

    operator: str
    epoch: int
    ended: float
    seconds: float
    rows: int
    phases: Mapping[str, float]
    """Seconds of the slowest transaction, by what it did."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A reconfiguration; it may have begun before the span, or not have ended in it."""

    number: int
    started: float | None
    ended: float | None
    text: str
    cause: str
    outcome: str
    pause_seconds: float
    bytes: int


@dataclass(slots=True)
class Span:
    """What happened between two times."""

    since: float
    until: float
    batches: list[SpanBatch] = field(default_factory=list)
    moves: list[Moved] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    """All but batches and looks at the load."""
    busy: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By worker: the end of an interval, and the share of it in which the worker applied."""

    @classmethod
    def of(
        cls, rows: Iterable[Row], since: float | None = None, until: float | None = None
    ) -> Span:
        """From entries in the order of their times; without times, as long as they are."""
        found = list(rows)
        times = [_time(row) for row in found]
        first, last = (min(times), max(times)) if times else (0.0, 0.0)
        span = cls(first if since is None else since, last if until is None else until)
        span.batches = [_batch(row) for row in found if _is_batch(row)]
        span.moves = _moves(found)
        span.events = [row for row in found if row["kind"] not in OFTEN]
        span.busy = _busy(row for row in found if row["kind"] == EntryKind.LOAD.value)
        return span

    @property
    def bad(self) -> list[Row]:
        """What nobody has asked for."""
        return [row for row in self.events if row["kind"] in BAD]

    def operators(self) -> list[str]:
        """Those that had batches."""
        return sorted({batch.operator for batch in self.batches})

    def facts(self) -> dict[str, str]:
        """The span in numbers."""
        seconds = sorted(batch.seconds for batch in self.batches)
        facts = {"batches": f"{len(seconds):,}"}
        if seconds:
            p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
            facts["rows"] = f"{sum(batch.rows for batch in self.batches):,}"
            facts["median batch"] = f"{statistics.median(seconds):.3f} s"
            facts["99 % below"] = f"{p99:.3f} s"
            facts["longest batch"] = f"{seconds[-1]:.3f} s"
        facts["reconfigurations"] = str(len(self.moves))
        pauses = [move.pause_seconds for move in self.moves]
        if pauses:
            facts["longest pause of a move"] = f"{1000 * max(pauses):.0f} ms"
        for kind, name in zip(BAD, ("deaths of workers", "failed batches", "gaps"), strict=True):
            count = sum(row["kind"] == kind for row in self.events)
            if count or kind != EntryKind.LOST.value:
                facts[name] = str(count)
        return facts


def _time(row: Row) -> float:
    at = row["time"]
    return at.timestamp() if isinstance(at, datetime) else float(at)


def _is_batch(row: Row) -> bool:
    return row["kind"] == EntryKind.BATCH.value and row.get("seconds") is not None


def _batch(row: Row) -> SpanBatch:
    phases = {name: (row.get(f"{name}_ms") or 0) / 1000 for name in PHASES}
    operator, seconds = str(row.get("operator") or ""), float(row["seconds"])
    return SpanBatch(operator, row["epoch"], _time(row), seconds, row.get("rows") or 0, phases)


def _moves(rows: Iterable[Row]) -> list[Moved]:
    """By number; a service that starts again begins to count again."""
    open_moves: dict[int, Row] = {}
    found = []
    for row in rows:
        number: int = (row.get("details") or {}).get("number", 0)
        if row["kind"] == EntryKind.SERVICE_STARTED.value:
            found += [_moved(start, None) for start in open_moves.values()]
            open_moves = {}
        elif row["kind"] == EntryKind.MOVE_STARTED.value:
            open_moves[number] = row
        elif row["kind"] == EntryKind.MOVE_ENDED.value:
            found.append(_moved(open_moves.pop(number, None), row))
    return found + [_moved(start, None) for start in open_moves.values()]


def _moved(start: Row | None, end: Row | None) -> Moved:
    about = (end or start or {}).get("details") or {}
    before, after = about.get("workers_before", ()), about.get("workers_after", ())
    ended = None if end is None else _time(end)
    started = None if start is None else _time(start)
    if started is None and ended is not None and end is not None:
        started = ended - (end.get("seconds") or 0.0)
    return Moved(
        about.get("number", 0),
        started,
        ended,
        f"{about.get('strategy', '?')}: {len(before)} to {len(after)} workers",
        str(about.get("cause", "?")),
        str(about.get("outcome", "no end is written down")),
        about.get("pause_seconds") or 0.0,
        about.get("bytes") or 0,
    )


def _busy(rows: Iterable[Row]) -> dict[str, list[tuple[float, float]]]:
    """Seconds of applying count up from the start of a process: their growth is the load."""
    before: dict[str, tuple[float, float]] = {}
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        at = _time(row)
        for worker, shown in (row.get("details") or {}).items():
            operators = shown.get("operators", {}).values()
            total = sum(each["busy_seconds"].get(APPLYING, 0.0) for each in operators)
            earlier, seconds = before.get(worker, (at, total))
            if at > earlier and total >= seconds:  # less: a new process
                share = (total - seconds) / (at - earlier)
                found.setdefault(worker, []).append((at, share))
            before[worker] = at, total
    return found
