"""A query under a load that changes, and the workers that it had: what came of a way to decide."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from anabranch.loadtest.latency import Batch
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import RateCurve
from anabranch.loadtest.waiting import Answers, checks_query

if TYPE_CHECKING:
    from anabranch.service import StateService

LOOK_SECONDS = 0.25
WARM_UP_ROWS = 600
SAME_SECONDS = 3.0
LATE = 2.0
"""Rows wait for one batch and run in the next: later than so many targets is too late."""
MADE = "%Y-%m-%d %H:%M UTC"

Look = Callable[["StateService", float], None]
"""Called a few times a second, with the seconds since the load began."""

Steer = Callable[[float, Sequence[tuple[float, int]], RateCurve], RateCurve]
"""Changes the pieces to come: called with the seconds so far, the workers so far, and the load."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load, and what its rows cost."""

    pieces: tuple[tuple[float, float], ...]
    """(seconds, rows a second)."""
    row_seconds: float = 0.008
    latency_target: float = 1.5
    start: int = 2
    """Workers at the beginning."""


@dataclass(frozen=True, slots=True)
class ToldDecision:
    """A decision that changed something."""

    at: float
    """Seconds since the load began."""
    workers: int
    to: int
    rule: str
    reason: str


@dataclass(frozen=True)
class ScaledRun:
    """What was seen."""

    name: str
    scenario: Scenario
    made: str
    cores: int | None
    load_average: float
    load: RateCurve
    batches: tuple[Batch, ...]
    workers: tuple[tuple[float, int], ...]
    """When how many workers had key groups, in seconds since the load began."""
    decisions: tuple[ToldDecision, ...]
    wrong: int
    """Customers whose count differs from a sequential one."""

    @property
    def end(self) -> float:
        """When the last batch was committed."""
        return max(b.committed for b in self.batches) - self.load.started

    @property
    def worker_seconds(self) -> float:
        """Workers times seconds, as long as the load lasted."""
        end, total = self.load.seconds, 0.0
        for (at, count), (after, _) in zip(
            self.workers, [*self.workers[1:], (end, 0)], strict=True
        ):
            total += count * max(0.0, min(after, end) - max(0.0, at))
        return total

    @property
    def late_share(self) -> float:
        """Of all rows: committed later than LATE targets after they were due."""
        limit = LATE * self.scenario.latency_target
        rows = late = 0
        for batch in self.batches:
            count = batch.rows
            slow = self._latency(batch, batch.first_row)
            fast = self._latency(batch, batch.end_row - 1)
            rows += count
            if fast > limit:
                late += count
            elif slow > limit:
                late += round(count * (slow - limit) / max(1e-9, slow - fast))
        return late / rows if rows else 0.0

    @property
    def actions(self) -> int:
        """Changes of the number of workers."""
        steps = itertools.pairwise(self.workers)
        found = [at for (_, before), (at, count) in steps if before != count]
        # Workers come and go one by one within a move.
        return sum(at - last > SAME_SECONDS for last, at in itertools.pairwise([-math.inf, *found]))

    def points(self) -> list[tuple[float, float]]:
        """When each batch was done, and how long its first row took."""
        return [
            (b.committed - self.load.started, self._latency(b, b.first_row)) for b in self.batches
        ]

    def _latency(self, batch: Batch, row: int) -> float:
        return batch.committed - self.load.intended(row)

    def line(self) -> str:
        """For people."""
        most = max(count for _, count in self.workers)
        return (
            f"{self.name:<14} {100 * self.late_share:6.2f} % of rows late, "
            f"{self.worker_seconds:7,.0f} worker-seconds, {self.actions} changes, at most {most} "
            f"workers, {'right' if not self.wrong else f'{self.wrong} WRONG'}"
        )

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["batches"] = [
            [b.first_row, b.end_row, round(b.started, 3), round(b.committed, 3)]
            for b in self.batches
        ]
        return {
            **plain,
            "scenario": asdict(self.scenario),
            "load": asdict(self.load),
            "workers": [[round(at, 2), count] for at, count in self.workers],
            "decisions": [asdict(each) for each in self.decisions],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ScaledRun:
        """What `to_json` was told of."""
        load, scenario = dict(told["load"]), dict(told["scenario"])
        load["pieces"] = tuple(map(tuple, load["pieces"]))
        scenario["pieces"] = tuple(map(tuple, scenario["pieces"]))
        rest = {
            "scenario": Scenario(**scenario),
            "load": RateCurve(**load),
            "batches": tuple(Batch(*each) for each in told["batches"]),
            "workers": tuple((at, count) for at, count in told["workers"]),
            "decisions": tuple(ToldDecision(**each) for each in told["decisions"]),
        }
        return cls(**{**told, **rest})


def run_scaled(
    spark: SparkSession,
    service: StateService,
    folder: Path,
    name: str,
    scenario: Scenario,
    look: Look = lambda service, passed: None,
    steer: Steer = lambda passed, workers, load: load,
    begin: Callable[[], None] = lambda: None,
) -> ScaledRun:
    """Put the load on a service; `begin` is called when the query is warm.

    `look` may watch, and `steer` may let a piece of the load last until something has happened.
    """
    made, average = datetime.now(timezone.utc).strftime(MADE), os.getloadavg()[0]
    answers, workers = Answers(), list[tuple[float, int]]()
    with LoadedQuery(
        checks_query(spark, service, scenario.row_seconds), folder, 0, answers.write
    ) as query:
        query.burst(WARM_UP_ROWS, WARM_UP_ROWS // 4, lambda _: None)
        begin()
        load = query.follow(scenario.pieces)
        while (passed := time.time() - load.started) < load.seconds:
            query.watch(LOOK_SECONDS)
            count = len({each["owner"] for each in service.key_groups()})
            if not workers or workers[-1][1] != count:
                workers.append((passed, count))
            look(service, passed)
            if (changed := steer(passed, workers, load)) != load:
                load = changed
                query.go_on(load)
        query.drain()
        batches = tuple(b for b in query.batches if b.end_row > load.first_row)
        wrong = answers.wrong(query.next_row)
    decisions = told_since(service, load.started)
    return ScaledRun(
        name, scenario, made, os.cpu_count(), average, load, batches, tuple(workers), decisions,
        wrong,
    )  # fmt: skip


def told_since(service: StateService, started: float) -> tuple[ToldDecision, ...]:
    """Steps of the autoscaler since then."""
    found = service.autoscaler(500)["decisions"]
    return tuple(
        ToldDecision(
            d["time"] - started, d["workers"], d["to"] or d["workers"], d["rule"], d["reason"]
        )
        for d in found
        if d["time"] >= started and d["action"] != "hold"
    )


def crowd(
    calm: float, busy: float, before: float, during: float, after: float
) -> tuple[tuple[float, float], ...]:
    """A flash crowd: rows a second, and seconds."""
    return (before, calm), (during, busy), (after, calm)
