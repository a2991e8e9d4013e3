"""`anabranch bench rescale`: latency while 2 workers become 3, with every strategy."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import check_folders, count, positive, seconds
from anabranch.cli.java import check_java
from anabranch.cli.progress import clear_progress, log_task, show_progress
from anabranch_bench.cli.experiment import FROM, check_alone, read_stored

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.experiments.rescale import RescaleSettings
    from anabranch_bench.experiments.rescale_findings import RescaleFindings
    from anabranch_bench.results.run_result import RunResult


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
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
    add, parts = parser.add_argument, ("strategies", "move", "series", "steady", "absolute")
    add("--parts", nargs="+", choices=parts, default=list(parts), help="what to measure (all)")
    add(
        "--strategies",
        nargs="+",
        metavar="NAME",
        help="which ones, as in: live meces:batch=5 megaphone:plan=fluid spark (all); 'spark' is "
        "Spark's native way; a control run is always made",
    )
    add("--state-gb", type=positive, help="size of the state (2)")
    add("--rate", type=positive, help="rows a second (half of the capacity)")
    add("--seconds", type=positive, help="steady load before and after the move (20)")
    add(
        "--trigger",
        type=seconds,
        help="seconds from the beginning of a batch to that of the next; 0: as soon as it is done, "
        "which keeps all cores busy at any rate (0.5)",
    )
    add("--series", nargs="+", type=positive, metavar="GB", help="state sizes (0.5 1 2 4)")
    add("--repeat", type=count, help="runs of each strategy (1)")
    add("--live-repeat", type=count, help="moves under live in one query, at least (3)")
    add("--quick", action="store_true", help="small state, few strategies")
    add("--json", metavar="FILE", help="write all figures there")
    add("--plot", metavar="FILE", help="draw latency over time there (PNG)")
    add("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_rescale)


def run_rescale(args: argparse.Namespace) -> int:
    """Run and print; what is done is kept when it is interrupted. The exit code is the verdict."""
    from anabranch.errors import AnabranchError
    from anabranch.loadtest.session import spark_session
    from anabranch.loadtest.timeline_plot import check_matplotlib
    from anabranch_bench.experiments.rescale import RescaleBench
    from anabranch_bench.reports.report import summary_line, write_json

    check_folders(args, "json", "plot")
    if args.plot:
        check_matplotlib()
    if args.stored:
        return _show_stored(args)
    check_java()
    settings = _settings(args)
    failure: BaseException | None = None
    with spark_session() as (spark, folder):
        bench = RescaleBench(spark, folder, settings, show_progress)

        def on_run(run: RunResult) -> None:
            clear_progress()
            print(summary_line(run), flush=True)
            write_json(args.json, bench.to_json(partial=True))

        bench.on_run, bench.on_task = on_run, log_task
        try:
            bench.run(tuple(args.parts))
        except (AnabranchError, KeyboardInterrupt) as error:
            failure = error
        clear_progress()
        write_json(args.json, bench.to_json(partial=failure is not None))
        _show(bench.found, args.plot, args.json)
    if failure is not None:
        why = "Interrupted" if isinstance(failure, KeyboardInterrupt) else "Ended by an error"
        print(f"{why}: these are the results so far.", file=sys.stderr)
        raise failure
    return _exit_code(bench.found)


def _show_stored(args: argparse.Namespace) -> int:
    """Of a run that was made before: no Spark is needed."""
    from anabranch_bench.experiments.rescale_findings import RescaleFindings

    check_alone(args, "json")
    (told,) = read_stored(args.stored, "rescale")
    found = RescaleFindings.from_json(told)
    print(f"From {args.stored}, made {found.machine['made']}.")
    if told["partial"]:
        print("It was interrupted: these are the results so far.", file=sys.stderr)
    _show(found, args.plot, args.stored)
    return _exit_code(found)


def _exit_code(found: RescaleFindings) -> int:
    missed = any(verdict.passed is False for verdict in found.verdicts())
    return 1 if missed or found.has_failed else 0


def _settings(args: argparse.Namespace) -> RescaleSettings:
    from anabranch.errors import InvalidArgument
    from anabranch.migration.strategies import check
    from anabranch_bench.experiments.rescale import RescaleSettings
    from anabranch_bench.results.cases import Case

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


def _show(found: RescaleFindings, plot: str | None, kept: str | Path | None) -> None:
    """Tables, verdicts and the picture, all from the same runs; `kept` is the file with them."""
    from anabranch.loadtest.picture_source import note_source
    from anabranch_bench.experiments.rescale_findings import tables_of
    from anabranch_bench.reports.pictures import draw_panels
    from anabranch_bench.reports.run_tables import failures

    for table in (*tables_of(found.results), failures(found.results)):
        if table.rows:
            print(f"\n{table.markdown()}")
    print()
    for name, rows in found.capacity.items():
        print(f"capacity, {name}: {rows:,.0f} rows/s")
    verdicts = sorted(found.verdicts(), key=lambda verdict: verdict.passed is None)
    for text in [*found.notes, *verdicts]:
        print(text, flush=True)
    if plot and draw_panels(found.results, Path(plot)):
        note_source(Path(plot), Path(kept) if kept else None)
        print(f"Latency over time: {plot}")
