"""`anabranch bench`: measurements beside Spark's own operators, in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import check_folders, count, positive, seconds
from anabranch.cli.java import check_java
from anabranch.cli.progress import clear_progress, log_task, print_result, show_progress
from anabranch_bench.cli import backends, checkpoint_modes, evaluation, hybrid, recovery

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.bench.rescale import RescaleBench, RescaleSettings
    from anabranch_bench.bench.rescale_runs import Run
    from anabranch_bench.bench.throughput import Comparison


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "bench",
        help="compare with Spark's own operators",
        description="Measure Anabranch and Spark's own operators in one run, on the same data.",
    )
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    throughput = kinds.add_parser(
        "throughput",
        help="rows a second, small batches, memory a key, restart with a large state",
        description="Key-count on both sides; state is durable before commit on both.",
        epilog="example: anabranch bench throughput --parts aggregate small",
    )
    parts = ("aggregate", "rows", "small", "memory", "restart")
    throughput.add_argument(
        "--parts", nargs="+", choices=parts, default=list(parts), help="what to measure (all)"
    )
    throughput.add_argument("--rows", type=int, default=500_000, help="rows a batch (500000)")
    throughput.add_argument("--keys", type=int, default=500_000, help="number of keys (500000)")
    throughput.add_argument("--batches", type=int, default=5, help="warm batches measured (5)")
    throughput.add_argument(
        "--native-rows",
        type=int,
        default=500_000,
        help="rows a batch for Spark's Python operator, which needs minutes for 500000",
    )
    throughput.add_argument("--large-keys", type=int, default=5_000_000, help="keys of the state")
    throughput.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    throughput.add_argument("--json", action="store_true", help="print JSON, one line for each")
    throughput.set_defaults(run=run_throughput)
    _register_rescale(kinds)
    evaluation.register(kinds)
    backends.register(kinds)
    checkpoint_modes.register(kinds)
    recovery.register(kinds)
    hybrid.register(kinds)


def _register_rescale(kinds: Subparsers) -> None:
    rescale = kinds.add_parser(
        "rescale",
        help="latency while 2 workers become 3, with every strategy and Spark's native way",
        description=(
            "Key-count with a payload under a steady open-loop load at half of the capacity. "
            "Latency counts from the time at which a row should have been sent. Every strategy "
            "starts from a copy of the same state; a control run has no reconfiguration. Moves "
            "under live and times without a move take turns in one query."
        ),
        epilog="example: anabranch bench rescale --quick --plot rescale.png --json rescale.json",
    )
    parts = ("strategies", "move", "series", "steady", "absolute")
    rescale.add_argument(
        "--parts", nargs="+", choices=parts, default=list(parts), help="what to measure (all)"
    )
    rescale.add_argument(
        "--strategies",
        nargs="+",
        metavar="NAME",
        help="which ones, as in: live meces:batch=5 megaphone:plan=fluid spark (all); 'spark' is "
        "Spark's native way; a control run is always made",
    )
    rescale.add_argument("--state-gb", type=positive, help="size of the state (2)")
    rescale.add_argument("--rate", type=positive, help="rows a second (half of the capacity)")
    rescale.add_argument(
        "--seconds", type=positive, help="steady load before and after the move (20)"
    )
    rescale.add_argument(
        "--trigger",
        type=seconds,
        help="seconds from the beginning of a batch to that of the next; 0: as soon as it is done, "
        "which keeps all cores busy at any rate (0.5)",
    )
    rescale.add_argument(
        "--series", nargs="+", type=positive, metavar="GB", help="state sizes (0.5 1 2 4)"
    )
    rescale.add_argument("--repeat", type=count, help="runs of each strategy (1)")
    rescale.add_argument(
        "--live-repeat", type=count, help="moves under live in one query, at least (3)"
    )
    rescale.add_argument("--quick", action="store_true", help="small state, few strategies")
    rescale.add_argument("--json", metavar="FILE", help="write all figures there")
    rescale.add_argument("--plot", metavar="FILE", help="draw latency over time there (PNG)")
    rescale.set_defaults(run=run_rescale)


def run_rescale(args: argparse.Namespace) -> int:
    """Run and print; what is done is kept when it is interrupted. The exit code is the verdict."""
    check_java()
    from anabranch.errors import AnabranchError
    from anabranch.loadtest.session import spark_session
    from anabranch.loadtest.timeline_plot import check_matplotlib
    from anabranch_bench.bench.rescale import RescaleBench
    from anabranch_bench.bench.rescale_report import summary_line

    check_folders(args, "json", "plot")
    if args.plot:
        check_matplotlib()
    settings = _rescale_settings(args)
    failure: BaseException | None = None
    with spark_session() as (spark, folder):
        bench = RescaleBench(spark, folder, settings, show_progress)

        def on_run(run: Run) -> None:
            clear_progress()
            print(summary_line(run), flush=True)
            _write_rescale(args, bench, partial=True)

        bench.on_run, bench.on_task = on_run, log_task
        try:
            bench.run(tuple(args.parts))
        except (AnabranchError, KeyboardInterrupt) as error:
            failure = error
        clear_progress()
        _print_rescale(bench)
        _write_rescale(args, bench, partial=failure is not None)
        if args.plot:
            _plot_rescale(args.plot, bench)
    if failure is not None:
        why = "Interrupted" if isinstance(failure, KeyboardInterrupt) else "Ended by an error"
        print(f"{why}: these are the results so far.", file=sys.stderr)
        raise failure
    missed = any(verdict.passed is False for verdict in bench.verdicts())
    return 1 if missed or bench.has_failed else 0


def _rescale_settings(args: argparse.Namespace) -> RescaleSettings:
    from anabranch.errors import InvalidArgument
    from anabranch.migration.strategies import check
    from anabranch_bench.bench.rescale import RescaleSettings
    from anabranch_bench.bench.rescale_runs import Case

    settings = RescaleSettings.quick() if args.quick else RescaleSettings()
    given: dict[str, Any] = {
        "state_gb": args.state_gb,
        "rate": args.rate,
        "repeat": args.repeat,
        "live_repeat": args.live_repeat,
        "strategies": tuple(args.strategies) if args.strategies else None,
        "series_gb": tuple(args.series) if args.series else None,
    }
    timing = settings.timing
    if args.seconds:
        timing = replace(timing, settle=min(10.0, args.seconds), steady=args.seconds)
    if args.trigger is not None:
        timing = replace(timing, trigger=args.trigger)
    given["timing"] = timing
    for text in args.strategies or ():
        case = Case.parse(text)
        if case.strategy is not None:
            general = ("bytes_per_second", "latency_target", "assignment")
            check(case.strategy, {k: v for k, v in case.options.items() if k not in general})
            for name in ("bytes_per_second", "latency_target"):
                if isinstance(case.options.get(name), str):
                    raise InvalidArgument(f"'{text}': {name} is a number.")
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _print_rescale(bench: RescaleBench) -> None:
    from anabranch_bench.bench.rescale_report import table

    print(table(bench.runs))
    print()
    for name, rows in bench.capacity.items():
        print(f"capacity, {name}: {rows:,.0f} rows/s")
    verdicts = sorted(bench.verdicts(), key=lambda verdict: verdict.passed is None)
    for text in [*bench.notes, *verdicts]:
        print(text, flush=True)


def _write_rescale(args: argparse.Namespace, bench: RescaleBench, partial: bool) -> None:
    from anabranch_bench.bench.rescale_report import to_json

    if args.json:
        text = json.dumps(to_json(bench, partial), indent=1, default=str)
        Path(args.json).write_text(text + "\n", encoding="utf-8")


def _plot_rescale(path: str, bench: RescaleBench) -> None:
    from anabranch_bench.bench.plots import plot_runs

    if plot_runs(bench.runs, Path(path)):
        print(f"Latency over time: {path}")


def run_throughput(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether all targets were met."""
    check_java()
    from anabranch.loadtest.session import spark_session
    from anabranch_bench.bench.throughput import ThroughputBench, ThroughputSettings

    settings = ThroughputSettings(
        rows=args.rows,
        keys=args.keys,
        batches=args.batches,
        native_rows=args.native_rows,
        large_keys=args.large_keys,
        workers=args.workers,
    )
    passed = True
    with spark_session() as (spark, folder):
        bench = ThroughputBench(spark, folder, settings, show_progress)
        for comparison in bench.run(args.parts):
            passed &= comparison.passed
            print_result(line(comparison), comparison.to_json() if args.json else None)
    return 0 if passed else 1


def line(comparison: Comparison) -> str:
    """For people."""

    def side(values: tuple[float, ...]) -> str:
        if not values:
            return "-"
        ordered = sorted(values)
        median = ordered[len(ordered) // 2]
        return f"{_number(median)} [{_number(ordered[0])} to {_number(ordered[-1])}]"

    ratio = "" if comparison.ratio is None else f"  ratio {comparison.ratio:.2f}"
    note = f"  ({comparison.note})" if comparison.note else ""
    verdict = "met" if comparison.passed else "MISSED"
    return (
        f"{comparison.part:<10} Anabranch {side(comparison.ours)}  Spark {side(comparison.spark)} "
        f"{comparison.unit}{ratio}\n{'':<10} target: {comparison.target}: {verdict}{note}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
