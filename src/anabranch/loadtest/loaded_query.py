"""A query under a schedule: starts it, tells its source what to deliver, collects its batches."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import Batch, Timeline
from anabranch.loadtest.schedule import HOLD, Burst, OpenLoop, RateCurve, Schedule, write_schedule

POLL_SECONDS = 0.1
START_DELAY_SECONDS = 0.2
BURST_SECONDS_MAX = 1800.0
LINK_BYTES_MIN = 1 << 20
WARM_UP_BATCHES = 6
LOOK_SECONDS = 0.5
"""Looks cost the JVM something: as many with a move as without."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """State that was loaded once: folders to copy for each run, and the row to go on with."""

    folder: Path
    keys: int
    payload_bytes: int
    next_row: int


class Folders:
    """New folders of a benchmark, one for each run."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._count = 0

    def fresh(self, name: str) -> Path:
        """An empty one."""
        self._count += 1
        folder = self._parent / f"{name}-{self._count}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    @contextmanager
    def copy(self, name: str, prepared: Prepared) -> Iterator[Path]:
        """A copy of a prepared state and its checkpoint, gone afterwards."""
        folder = self.fresh(name)
        try:
            shutil.copytree(prepared.folder, folder, copy_function=_link_large, dirs_exist_ok=True)
            os.sync()  # what others have written must not reach the disk while we measure
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _link_large(source: str, target: str) -> None:
    """Our files are never changed, and copies of gigabytes would reach the disk for a minute."""
    is_ours = "operators" in Path(source).parts  # Spark may write over its own
    if is_ours and os.path.getsize(source) >= LINK_BYTES_MIN:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


class LoadedQuery:
    """A running query whose source follows a schedule file in its folder."""

    def __init__(
        self,
        make: Callable[[Path], DataFrame],
        folder: Path,
        next_row: int,
        sink: Callable[[DataFrame, int], None] | None = None,
        trigger_seconds: float = 0.0,
    ) -> None:
        """`sink` is for foreachBatch; without it results are thrown away. A batch begins every
        `trigger_seconds`; 0: as soon as the one before is done."""
        self._make = make
        self._sink = sink
        self._trigger_seconds = trigger_seconds
        self._folder = folder
        self._schedule = folder / "schedule.json"
        self._query: Any = None
        self._seen = -1
        self.next_row = next_row
        self.batches: list[Batch] = []

    # -- the query --

    def __enter__(self) -> LoadedQuery:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, schedule: Schedule = HOLD) -> None:
        """Start or restart it on its checkpoint."""
        write_schedule(self._schedule, schedule)
        writer = self._make(self._schedule).writeStream
        writer = writer.format("noop") if self._sink is None else writer.foreachBatch(self._sink)
        if self._trigger_seconds:
            interval = f"{round(1000 * self._trigger_seconds)} milliseconds"
            writer = writer.trigger(processingTime=interval)
        self._query = (
            writer.outputMode("update")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )

    def stop(self) -> None:
        """Stop it; what was committed is kept."""
        if self._query is not None:
            self._query.stop()
            self.collect()
            self._query = None

    # -- the load --

    def burst(self, rows: int, batch_rows: int, on_batch: Callable[[float], None]) -> list[Batch]:
        """Closed loop: run these rows through; the batches that took them."""
        until, begun = self.next_row + rows, len(self.batches)
        write_schedule(self._schedule, Burst(until, batch_rows))
        limit = time.monotonic() + BURST_SECONDS_MAX
        while self.next_row < until:
            self.watch(POLL_SECONDS)
            on_batch(1 - (until - self.next_row) / rows)
            if time.monotonic() > limit:
                raise AnabranchError("The query has not taken its rows for half an hour.")
        return self.batches[begun:]

    def open(self, rate: float) -> OpenLoop:
        """Open loop from now on: row after row at a steady rate."""
        load = OpenLoop(self.next_row, time.time() + START_DELAY_SECONDS, rate)
        write_schedule(self._schedule, load)
        return load

    def follow(self, pieces: Sequence[tuple[float, float]]) -> RateCurve:
        """Open loop from now on, at rates that change."""
        load = RateCurve(self.next_row, time.time() + START_DELAY_SECONDS, tuple(pieces))
        write_schedule(self._schedule, load)
        return load

    def go_on(self, load: RateCurve) -> None:
        """The same load with other pieces from now on; what has passed must be as it was."""
        write_schedule(self._schedule, load)

    def drain(self, on_wait: Callable[[int], None] = lambda rows: None) -> None:
        """Deliver nothing more; return when what was delivered is committed.

        `on_wait` hears from time to time how many rows are left.
        """
        write_schedule(self._schedule, HOLD)
        # In a thread: this one looks on, and a signal can end it.
        waiting = WaitingThread(self._query.processAllAvailable)
        while not waiting.ended(LOOK_SECONDS):
            self.collect()
            on_wait(self.rows_left())
        self.collect()

    def rows_left(self) -> int:
        """Rows that were delivered and are not committed, as Spark's checkpoint has them."""
        return max(0, delivered_rows(self._folder / "checkpoint") - self.next_row)

    def watch(self, seconds: float) -> None:
        """Sleep, then collect; raise if the query has failed."""
        time.sleep(seconds)
        self.collect()
        if not self._query.isActive:
            raise AnabranchError(f"The measured query failed: {self._query.exception()}")

    def collect(self) -> None:
        """Take over the reports that are new."""
        for report in _new_reports(self._query, self._seen):
            batch = _as_batch(report)
            # An idle trigger reports under the number of the batch to come.
            if batch.end_row > self.next_row:
                self._seen = report["batchId"]
                self.batches.append(batch)
                self.next_row = batch.end_row

    def timeline(self, load: OpenLoop) -> Timeline:
        """What the load saw."""
        return Timeline(load, self.batches)


class WaitingThread:
    """A call that blocks, in a thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-waiting", daemon=True)
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        """Whether it has returned after at most so long; raises what it has raised."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self._error = error


def delivered_rows(checkpoint: Path) -> int:
    """The end of the last batch that has begun, by Spark's offset log; 0 if nobody knows."""
    numbers = [int(p.name) for p in checkpoint.glob("offsets/*") if p.name.isdigit()]
    if not numbers:
        return 0
    try:
        text = (checkpoint / "offsets" / str(max(numbers))).read_text(encoding="utf-8")
        return int(json.loads(text.splitlines()[2])["row"])
    except (OSError, ValueError, LookupError, TypeError):  # being written, or of another source
        return 0


def warm_up(query: LoadedQuery, rate: float, say: Say) -> None:
    """Batches as large as those to come: state gets loaded, the JVM compiles."""
    rows = max(1000, int(rate))
    query.burst(WARM_UP_BATCHES * rows, rows, lambda done: say(f"warming up, {done:.0%}"))


def watch_until(
    query: LoadedQuery,
    load: OpenLoop,
    end: float,
    say: Say,
    what: str,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Let the load run until that many seconds after its beginning."""
    while (left := load.started + end - time.time()) > 0:
        say(f"{what}, {left:.0f} s left")
        query.watch(min(left, LOOK_SECONDS))
        look()


def _new_reports(query: Any, seen: int) -> list[dict[str, Any]]:
    """Progress reports after a batch; only these are turned into text, which is what costs."""
    reports: list[dict[str, Any]] = []
    for report in reversed(query._jsq.recentProgress()):
        if report.batchId() <= seen:
            break
        reports.append(json.loads(report.json()))
    return reports[::-1]


def _as_batch(report: dict[str, Any]) -> Batch:
    """A report has when its trigger fired and how long all of it took, to the millisecond."""
    source = report["sources"][0]
    first = (source["startOffset"] or {"row": 0})["row"]
    end = (source["endOffset"] or {"row": first})["row"]
    started = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()
    seconds = report["durationMs"]["triggerExecution"] / 1000
    return Batch(first, end, started, started + seconds)
