"""`anabranch bench observe`: what API, journal and metrics cost a batch, in turns in one run.

Two services in one driver, the same query on each. One is as users have it and is scraped; the
other listens to nothing and writes nothing down. A turn is some batches and a rest, in which the
journal is written. CPU seconds count, not the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.coordinator.journal import Journal
from anabranch.coordinator.journal_notes import no_note
from anabranch.durability.blobs import BlobStore
from anabranch.http.client import ServiceClient
from anabranch.http.metrics import Metrics
from anabranch.loadtest.loaded_query import LoadedQuery, Say
from anabranch.loadtest.schedule import load_frame
from anabranch.model.journal_entry import EntryKind
from anabranch.service import StateService
from anabranch_bench.probes.cpu_times import cpu_seconds
from anabranch_bench.runs.key_counts import counts

OBSERVED, BARE = "observed", "bare"
KINDS = (OBSERVED, BARE)
REST_SECONDS = 2.5
"""After the batches of a turn: the journal is written within two seconds."""
WARM_UP_TURNS = 2
NOTES = 20_000


@dataclass(frozen=True, slots=True)
class ObserveSettings:
    """Sizes of a run."""

    rows: int = 50_000
    """Of a batch."""
    keys: int = 100_000
    batches: int = 10
    """Of a turn."""
    turns: int = 10
    """Of each kind."""
    workers: int = 2


@dataclass(frozen=True, slots=True)
class ObservedTurn:
    """Some batches of one kind: CPU milliseconds a batch."""

    kind: str
    driver_ms: float
    """Python of the driver: coordinator, journal, API."""
    workers_ms: float
    jvm_ms: float

    @property
    def python_ms(self) -> float:
        """Where observing is done."""
        return self.driver_ms + self.workers_ms

    @property
    def total_ms(self) -> float:
        """Of all processes that the query has, except Spark's Python tasks."""
        return self.python_ms + self.jvm_ms

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ObservedTurn:
        """The reverse."""
        return cls(**told)

    def line(self) -> str:
        """For people."""
        return (
            f"{self.kind:<8} {self.total_ms:7.1f} CPU ms a batch: driver {self.driver_ms:.1f}, "
            f"workers {self.workers_ms:.1f}, JVM {self.jvm_ms:.1f}"
        )


@dataclass(frozen=True, slots=True)
class NoteCost:
    """What a batch pays for being written down and counted."""

    note_us: float
    """In the thread that ends the batch."""
    written_us: float
    """In the journal's own thread, if batches come as fast as they can."""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def line(self) -> str:
        """For people."""
        return (
            f"a note of a batch: {self.note_us:.1f} CPU us in the batch, {self.written_us:.1f} "
            "in the journal's thread"
        )


def note_cost(folder: Path) -> NoteCost:
    """Of journal and metrics together, on a folder."""
    journal = Journal(BlobStore(str(folder)), {"pid": 0})
    metrics = Metrics(dict, dict)
    journal.listeners.append(metrics.note)
    batch = {"seconds": 0.25, "rows": 1000, "load_ms": 0, "wait_ms": 1, "apply_ms": 7}
    details = {"rows_updated": 900, "state_rows": 10_000, "state_bytes": 1_000_000}
    process, thread = time.process_time(), time.thread_time()
    for epoch in range(NOTES):
        journal.note(
            EntryKind.BATCH, operator="totals", epoch=epoch, write_ms=3, details=details, **batch
        )
    noted = time.thread_time() - thread
    journal.stop()
    written = time.process_time() - process - noted
    return NoteCost(1e6 * noted / NOTES, 1e6 * written / NOTES)


@dataclass
class ObserveBench:
    """Both kinds at the same time, some batches here, some there."""

    spark: SparkSession
    folder: Path
    settings: ObserveSettings
    say: Say

    def run(self) -> Iterator[ObservedTurn]:
        """Each turn when it is over; the first ones do not count."""
        gateway: Any = self.spark.sparkContext._gateway
        jvm = int(gateway.jvm.java.lang.ProcessHandle.current().pid())
        with ExitStack() as stack:
            sides = {kind: _Side(stack, self, kind) for kind in KINDS}
            for side in sides.values():
                side.query.burst(self.settings.keys, self.settings.keys, lambda _: None)
            for number in range(WARM_UP_TURNS + self.settings.turns):
                for kind in KINDS if number % 2 else KINDS[::-1]:
                    self.say(f"turn {number + 1} of {WARM_UP_TURNS + self.settings.turns}: {kind}")
                    turn = sides[kind].turn(jvm)
                    if number >= WARM_UP_TURNS:
                        yield turn


class _Side:
    """A service and its query."""

    def __init__(self, stack: ExitStack, bench: ObserveBench, kind: str) -> None:
        self._kind, self._settings = kind, bench.settings
        folder = bench.folder / kind
        folder.mkdir()
        self._location = str(folder / "state")
        self._service = stack.enter_context(
            StateService(
                bench.spark,
                self._location,
                workers=bench.settings.workers,
                http=kind == OBSERVED,
            )
        )
        if kind == BARE:
            self._service._control.notes._note = no_note

        def make(schedule: Path) -> DataFrame:
            frame = load_frame(bench.spark, schedule, bench.settings.keys, 0)
            return counts(self._service, frame, 0)

        self.query = stack.enter_context(LoadedQuery(make, folder, 0))

    def turn(self, jvm: int) -> ObservedTurn:
        """Some batches, a look by Prometheus, a rest."""
        workers = [shown["pid"] for shown in self._service.status()["workers"].values()]
        before = time.process_time(), cpu_seconds(workers), cpu_seconds([jvm])
        rows = self._settings.rows
        self.query.burst(self._settings.batches * rows, rows, lambda _: None)
        if self._kind == OBSERVED:
            ServiceClient.of(self._location).metrics()
        time.sleep(REST_SECONDS)
        after = time.process_time(), cpu_seconds(workers), cpu_seconds([jvm])
        share = 1000 / self._settings.batches
        driver, some, java = (
            share * (end - start) for start, end in zip(before, after, strict=True)
        )
        return ObservedTurn(self._kind, driver, some, java)


def cells(found: Sequence[ObservedTurn], kind: str) -> list[str]:
    """A row of the table in the documentation: medians and ranges."""
    some = [turn for turn in found if turn.kind == kind]
    both = ([turn.python_ms for turn in some], [turn.total_ms for turn in some])
    return [f"{median(each):.1f} ms [{min(each):.1f} to {max(each):.1f}]" for each in both]


def summary(found: Sequence[ObservedTurn]) -> list[str]:
    """Medians and ranges, and what observing adds, for people."""
    rows = [f"| {kind} | {' | '.join(cells(found, kind))} |" for kind in KINDS]
    python = {kind: median(t.python_ms for t in found if t.kind == kind) for kind in KINDS}
    total = {kind: median(t.total_ms for t in found if t.kind == kind) for kind in KINDS}
    more = python[OBSERVED] - python[BARE]
    return [
        *("| CPU a batch | Python of driver and workers | with the JVM |", "|---|---|---|", *rows),
        f"observing costs {total[OBSERVED] / total[BARE] - 1:+.1%} of a batch's CPU, all together",
        f"Python alone, where it is done: {more:+.2f} ms a batch, {more / total[BARE]:+.1%} of it",
    ]
