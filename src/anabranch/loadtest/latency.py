"""Latency from the intended time: every row counts, whatever batch it had to wait for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from anabranch.loadtest.schedule import OpenLoop


@dataclass(frozen=True, slots=True)
class Batch:
    """One committed micro-batch: rows [first_row, end_row), times in seconds since the epoch."""

    first_row: int
    end_row: int
    started: float
    committed: float

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.end_row - self.first_row


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A span of time, in seconds since the load began."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Point:
    """Rows of one batch: when it was done (seconds since the load began), their latencies."""

    done: float
    slowest: float
    fastest: float
    rows: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of rows, in seconds."""

    rows: int
    peak: float
    p99: float
    p50: float
    mean: float
    throughput: float
    """Rows committed a second, from the first to the last commit of the window."""

    def to_json(self) -> dict[str, Any]:
        """For machines; None where nothing was measured."""
        return {name: _finite(value) for name, value in asdict(self).items()}


NOTHING = Latency(0, math.nan, math.nan, math.nan, math.nan, math.nan)


class Timeline:
    """The batches of one run under an open-loop load."""

    def __init__(self, load: OpenLoop, batches: Iterable[Batch]) -> None:
        self.load = load
        found = {b.first_row: b for b in batches if b.end_row > load.first_row and b.rows}
        self.batches = [found[first] for first in sorted(found)]
        self._known: dict[tuple[str, TimeWindow], Latency] = {}

    @property
    def end(self) -> float:
        """When the last batch was committed, in seconds since the load began."""
        return self.batches[-1].committed - self.load.started if self.batches else 0.0

    def before(self, window: TimeWindow) -> Latency:
        """Rows due after the window's start and committed before its end."""
        return self._latency("before", window, due_from=window.start, done_until=window.end)

    def during(self, window: TimeWindow) -> Latency:
        """Rows that were on their way at any time in the window."""
        return self._latency("during", window, due_until=window.end, done_from=window.start)

    def after(self, window: TimeWindow) -> Latency:
        """Rows due in the window."""
        return self._latency("after", window, due_from=window.start, due_until=window.end)

    def points(self) -> list[Point]:
        """All batches, for plots and machines."""
        return self._select()

    def to_json(self) -> dict[str, Any]:
        """All batches to the last bit: what is computed of them again is the same."""
        batches = [[b.first_row, b.end_row, b.started, b.committed] for b in self.batches]
        columns = [field.name for field in fields(Batch)]
        return {"load": asdict(self.load), "columns": columns, "batches": batches}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Timeline:
        """What `to_json` was told of."""
        named = (dict(zip(told["columns"], batch, strict=True)) for batch in told["batches"])
        return cls(OpenLoop(**told["load"]), [Batch(**batch) for batch in named])

    def _select(
        self,
        due_from: float = 0.0,
        due_until: float = math.inf,
        done_from: float = -math.inf,
        done_until: float = math.inf,
    ) -> list[Point]:
        """The rows of each batch that were due and done in these times since the load began."""
        load, found = self.load, []
        first_due = load.first_row + math.ceil(due_from * load.rate)
        last_due = load.first_row + due_until * load.rate
        for batch in self.batches:
            done = batch.committed - load.started
            first = max(batch.first_row, first_due)
            last = min(batch.end_row - 1, last_due)
            if not done_from <= done < done_until or last < first:
                continue
            last = math.floor(last)
            slowest = batch.committed - load.intended(first)
            fastest = batch.committed - load.intended(last)
            found.append(Point(done, slowest, fastest, last - first + 1))
        return found

    def _latency(self, name: str, window: TimeWindow, **bounds: float) -> Latency:
        """Statistics over rows; percentiles weigh every row alike. Computed once."""
        if (name, window) not in self._known:
            self._known[name, window] = self._compute(self._select(**bounds), window)
        return self._known[name, window]

    def _compute(self, points: list[Point], window: TimeWindow) -> Latency:
        if not points:
            return NOTHING
        values = np.concatenate([np.linspace(p.slowest, p.fastest, p.rows) for p in points])
        p50, p99 = np.percentile(values, [50, 99])
        return Latency(
            len(values),
            float(values.max()),
            float(p99),
            float(p50),
            float(values.mean()),
            self.throughput(window),
        )

    def throughput(self, window: TimeWindow) -> float:
        """Rows a second between the commits just before and just after the window's ends.

        Whole batches only, so that a short window is not rounded to batches.
        """
        commits = [b.committed - self.load.started for b in self.batches]
        inside = [n for n, at in enumerate(commits) if at > window.start]
        if not inside or inside[0] == 0:
            return math.nan
        before = inside[0] - 1
        past = [n for n in inside if commits[n] >= window.end]
        last = past[0] if past else inside[-1]
        rows = sum(b.rows for b in self.batches[before + 1 : last + 1])
        seconds = commits[last] - commits[before]
        return rows / seconds if seconds > 0 else math.nan


def typical(found: Sequence[Latency]) -> Latency | None:
    """Of several runs: the median of each figure; None of none."""
    if not found:
        return None

    def middle(name: str) -> float:
        return median([getattr(latency, name) for latency in found])

    others = ("peak", "p99", "p50", "mean", "throughput")
    return Latency(int(middle("rows")), *(middle(name) for name in others))


def median(values: Sequence[float]) -> float:
    """Median of the values that are numbers."""
    numbers = sorted(v for v in values if not math.isnan(v))
    if not numbers:
        return math.nan
    middle = len(numbers) // 2
    return (numbers[middle] + numbers[-1 - middle]) / 2


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
