"""`anabranch demo`: a stream under load is rescaled 2 -> 3 -> 2, then scales itself; checked."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import check_folders, count, positive
from anabranch.cli.demo_crowd import run_crowd, show_crowd
from anabranch.cli.java import check_java
from anabranch.cli.progress import bar
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.cli.main import Subparsers
    from anabranch.loadtest.latency import Timeline
    from anabranch.loadtest.loaded_query import LoadedQuery
    from anabranch.loadtest.scaled_run import ScaledRun
    from anabranch.loadtest.schedule import OpenLoop
    from anabranch.service import StateService

RATE = 20_000
CUSTOMERS = 200_000
SPREAD = 2_654_435_761
"""Knuth's multiplicative constant: spreads order numbers over customers, in Spark and in NumPy."""
WARM_UP_ROWS = 400_000
BAR = 24
ACTS = ("all", "moves", "crowd")
MADE = "%Y-%m-%d %H:%M UTC"


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "demo",
        help="a streaming query that is rescaled while it runs, checked",
        description=(
            "Counts orders and sums amounts for each customer of a steady stream. Goes from 2 to 3 "
            "workers and back while the stream runs. Draws the latency of rows over time, and "
            "compares the result with a sequential computation. Then a flash crowd comes, and the "
            "autoscaler finds the number of workers."
        ),
    )
    parser.add_argument(
        "--seconds", type=positive, default=8, help="steady load before, between and after (8)"
    )
    parser.add_argument("--rate", type=count, default=RATE, help=f"rows a second ({RATE:,})")
    parser.add_argument("--strategy", default="live", help="how key groups move (live)")
    parser.add_argument(
        "--act", choices=ACTS, default="all", help="only the moves, or only the crowd (all)"
    )
    parser.add_argument(
        "--plot", type=Path, default=Path("anabranch-demo.png"), help="where the picture goes"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every batch there")
    parser.add_argument(
        "--from",
        dest="stored",
        type=Path,
        metavar="FILE",
        help="run nothing: show and draw what --json kept",
    )
    parser.set_defaults(run=run_demo)


@dataclass
class Sink:
    """An idempotent sink: the last value of each customer."""

    totals: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """foreachBatch's function."""
        rows = batch.toArrow().to_pydict()
        values = zip(rows["orders"], rows["amount"], strict=True)
        self.totals.update(zip(rows["customer"], values, strict=True))


@dataclass(frozen=True)
class DemoMove:
    """A reconfiguration, in seconds since the load began."""

    name: str
    start: float
    end: float
    report: str


@dataclass(frozen=True)
class DemoRun:
    """What a run showed, and when and on what it was made."""

    made: str
    cores: int | None
    load_average: float
    timeline: Timeline
    changes: list[DemoMove]

    @property
    def about(self) -> str:
        """For the picture."""
        return (
            f"One run, {self.made}, on {self.cores} cores; load average of the machine before it: "
            f"{self.load_average:.1f}."
        )

    def to_json(self) -> dict[str, Any]:
        """For a file; `from_json` reads it."""
        return {
            "demo": {"made": self.made, "cores": self.cores, "load_average": self.load_average},
            "changes": [asdict(change) for change in self.changes],
            "timeline": self.timeline.to_json(),
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> DemoRun:
        """A run that was made before."""
        from anabranch.loadtest.latency import Timeline

        changes = [DemoMove(**change) for change in told["changes"]]
        timeline = Timeline.from_json(told["timeline"])
        return cls(timeline=timeline, changes=changes, **told["demo"])


def run_demo(args: argparse.Namespace) -> int:
    """Run it; the exit code says whether the results were right."""
    from anabranch.migration.strategies import check

    check(args.strategy, {})
    check_folders(args, "plot", "json")
    if args.stored:
        _show_all(*_read(args.stored), args, args.stored)
        return 0
    check_java()
    made, load_average = datetime.now(timezone.utc).strftime(MADE), os.getloadavg()[0]
    print("Starting Spark and a state service with 2 workers ...", flush=True)
    from anabranch.loadtest.session import spark_session

    run, crowd, code = None, None, 0
    with spark_session(memory="1g") as (spark, folder):
        if args.act != "crowd":
            run, sink, rows = _moves_act(spark, folder, args, made, load_average)
            code = _verdict(sink, rows)
        if args.act != "moves":
            crowd = run_crowd(spark, folder)
            code = code or int(crowd.wrong > 0)
    if args.json:
        told = {**(run.to_json() if run else {}), **({"crowd": crowd.to_json()} if crowd else {})}
        text = json.dumps(told, separators=(",", ":"))
        args.json.write_text(f"{text}\n", encoding="utf-8")
    _show_all(run, crowd, args, args.json)
    return code


def _moves_act(
    spark: SparkSession, folder: Path, args: argparse.Namespace, made: str, load_average: float
) -> tuple[DemoRun, Sink, int]:
    """The first two acts: 2 -> 3 workers, and back."""
    from anabranch.loadtest.loaded_query import LoadedQuery
    from anabranch.service import StateService

    sink = Sink()
    with (
        StateService(spark, str(folder / "state"), workers=2) as service,
        LoadedQuery(orders_query(spark, service), folder, 0, sink.write) as query,
    ):
        _tell_page(service)
        timeline, changes = _run(query, service, args)
    run = DemoRun(made, os.cpu_count(), load_average, timeline, changes)
    return run, sink, query.next_row


def crowd_picture(plot: Path) -> Path:
    """Beside the picture of the moves; with `--act crowd` too, so that names stay the same."""
    return plot.with_name(f"{plot.stem.removesuffix('-crowd')}-crowd{plot.suffix}")


def _show_all(
    run: DemoRun | None, crowd: ScaledRun | None, args: argparse.Namespace, kept: Path | None
) -> None:
    if run is not None and args.act != "crowd":
        show(run, args.plot, kept)
    if crowd is not None and args.act != "moves":
        show_crowd(crowd, crowd_picture(args.plot), kept)


def _tell_page(service: StateService) -> None:
    """Where to look at it in a browser, if the extra `ui` is here."""
    with contextlib.suppress(InvalidArgument):
        url = service.url
        from anabranch.http.page import PageFiles

        if PageFiles().is_built:
            print(f"Watch it in a browser (the link works once): {url}", flush=True)


def _read(path: Path) -> tuple[DemoRun | None, ScaledRun | None]:
    from anabranch.loadtest.scaled_run import ScaledRun

    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        crowd = ScaledRun.from_json(told["crowd"]) if "crowd" in told else None
        return DemoRun.from_json(told) if crowd is None or "demo" in told else None, crowd
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"--from: {path} has no run of the demo. Give a file that `anabranch demo --json FILE` "
            "wrote."
        ) from error


def orders_query(spark: SparkSession, service: StateService) -> Callable[[Path], DataFrame]:
    """Counts and sums of each customer, for a source that follows a schedule file."""
    from pyspark.sql import functions as F

    from anabranch import agg
    from anabranch.loadtest.schedule import row_numbers

    def make(schedule: Path) -> DataFrame:
        orders = row_numbers(spark, schedule).select(
            ((F.col("row") * SPREAD) % CUSTOMERS).alias("customer"),
            (F.col("row") % 100).alias("amount"),
        )
        return service.group_by(orders, "customer").aggregate(
            orders=agg.count(), amount=agg.sum("amount"), name="totals"
        )

    return make


def _run(
    query: LoadedQuery, service: StateService, args: argparse.Namespace
) -> tuple[Timeline, list[DemoMove]]:
    print(f"Warming up with {WARM_UP_ROWS:,} orders of {CUSTOMERS:,} customers ...", flush=True)
    query.burst(WARM_UP_ROWS, WARM_UP_ROWS // 8, lambda _: None)
    load = query.open(args.rate)
    print(
        f"Now {args.rate:,} orders a second, whatever happens. Latency counts from the time at "
        "which a row should have been sent.\n"
    )
    print(f"{'time':>7} {'rows done':>11} {'latency':>9}  key groups of each worker")
    changes = []
    watch = _Watch(query, service, load)
    watch.steady(args.seconds)
    for workers in (3, 2):
        name = f"{len(service.status()['workers'])} -> {workers} workers"
        start = time.time() - load.started
        print(f"        rescale({workers}, strategy={args.strategy!r})", flush=True)
        move = service.rescale(workers, strategy=args.strategy)
        while not move.wait(0.2):
            watch.line(move.progress)
        end = time.time() - load.started
        changes.append(DemoMove(name, start, end, str(move.report())))
        watch.line(1.0)
        watch.steady(args.seconds)
    query.drain(watch.left)
    return query.timeline(load), changes


class _Watch:
    """A line a second: what a user who watches latency sees."""

    def __init__(self, query: LoadedQuery, service: StateService, load: OpenLoop) -> None:
        self._query = query
        self._service = service
        self._load = load
        self._next = 0.0

    def steady(self, seconds: float) -> None:
        """Watch for a while."""
        end = time.time() + seconds
        while time.time() < end:
            self._query.watch(0.1)
            self.line()

    def left(self, rows: int) -> None:
        """Print, once a second, what is still to come."""
        now = time.time()
        if rows and now >= self._next:
            self._next = now + 1
            print(f"        catching up, {rows:,} rows left", flush=True)

    def line(self, progress: float | None = None) -> None:
        """Print, once a second and at the end of a move."""
        now = time.time()
        if now < self._next and progress != 1.0:
            return
        self._next = now + 1
        self._query.collect()
        last = self._query.batches[-1]
        workers = self._service.status()["workers"]
        shares = "  ".join(f"{name} {worker['key_groups']}" for name, worker in workers.items())
        done = "" if progress is None else f"  {bar(progress, BAR)}"
        slowest = last.committed - self._load.intended(max(last.first_row, self._load.first_row))
        latency = f"{slowest * 1000:,.0f} ms" if last.end_row > self._load.first_row else "-"
        seconds = f"{max(0.0, now - self._load.started):.1f} s"
        print(f"{seconds:>7} {last.end_row:>11,} {latency:>9}  {shares}{done}", flush=True)


def show(run: DemoRun, plot: Path, kept: Path | None) -> None:
    """Print latencies and reports; draw the picture, which names the file that has the run."""
    from anabranch.loadtest.latency import TimeWindow

    timeline, changes = run.timeline, run.changes
    print(f"\n{'latency of rows':<22} {'before':>16} {'during':>16} {'after':>16}")
    starts = [0.0, *(c.end for c in changes[:-1])]
    ends = [*(c.start for c in changes[1:]), timeline.end]
    for change, before, after in zip(changes, starts, ends, strict=True):
        spans = (
            timeline.before(TimeWindow(before, change.start)),
            timeline.during(TimeWindow(change.start, change.end)),
            timeline.after(TimeWindow(change.end, after)),
        )
        cells = "".join(f"{s.p50 * 1000:>8.0f} /{s.peak * 1000:>5.0f} ms" for s in spans)
        print(f"{change.name:<22} {cells}   (median / peak)")
    for change in changes:
        print(f"\n{change.report}")
    try:
        from anabranch.loadtest.picture_source import note_source
        from anabranch.loadtest.timeline_plot import plot_timeline

        marks = [(c.name, c.start, c.end) for c in changes]
        plot_timeline(timeline, marks, plot, run.about)
        note_source(plot, kept)
        print(f"\nLatency over time, with the moves marked: {plot}")
    except ValueError as error:  # without matplotlib
        print(f"\n{error}")


def _verdict(sink: Sink, rows: int) -> int:
    """Compare with a sequential computation over the same orders."""
    customers, wrong = compare(sink, rows)
    return verdict(rows, customers, wrong)


def compare(sink: Sink, rows: int) -> tuple[int, int]:
    """Customers of these orders, and how many of them differ from a sequential computation."""
    import numpy as np

    numbers = np.arange(rows, dtype=np.int64)
    customers = (numbers * SPREAD) % CUSTOMERS
    counts = np.bincount(customers, minlength=CUSTOMERS)
    amounts = np.bincount(customers, weights=numbers % 100, minlength=CUSTOMERS).astype(np.int64)
    expected = {
        customer: (int(counts[customer]), int(amounts[customer]))
        for customer in np.flatnonzero(counts).tolist()
    }
    wrong = sum(1 for k in expected.keys() | sink.totals if expected.get(k) != sink.totals.get(k))
    return len(expected), wrong


def verdict(rows: int, customers: int, wrong: int) -> int:
    """Say what was found; the exit code."""
    print(f"\n{rows:,} orders of {customers:,} customers.")
    if wrong:
        print(
            f"WRONG: {wrong:,} customers differ from the sequential computation.", file=sys.stderr
        )
        return 1
    print("Every count and every sum equals the sequential computation: nothing lost or doubled.")
    return 0
