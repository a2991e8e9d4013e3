"""`anabranch bench autoscale`: late rows against worker-seconds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import check_folders, count, positive
from anabranch.cli.java import check_java
from anabranch.cli.progress import print_result
from anabranch_bench.cli.experiment import FROM, check_alone, print_head, read_stored, settings_of

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "autoscale",
        help="late rows against worker-seconds: autoscaler, threshold rule, static numbers",
        description=(
            "A flash crowd comes to a query whose rows cost waiting. The autoscaler, a threshold "
            "rule and static numbers of workers have the same load, one after the other."
        ),
        epilog="example: anabranch bench autoscale --static 2 5 --during 40 --plot autoscale.png",
    )
    add = parser.add_argument
    add("--calm", type=positive, default=100.0, help="rows a second before and after (100)")
    add("--busy", type=positive, default=450.0, help="rows a second of the crowd (450)")
    add("--before", type=positive, default=20.0, help="seconds before it (20)")
    add("--during", type=positive, default=60.0, help="seconds of it (60)")
    add("--after", type=positive, default=60.0, help="seconds after it (60)")
    add("--row-ms", type=positive, default=8.0, help="milliseconds that a row waits (8)")
    add("--target", type=positive, default=3.0, help="seconds that a batch may take (3)")
    add("--most", type=count, default=8, help="workers at most (8)")
    add("--static", type=count, nargs="*", default=[2, 4, 5, 6], help="static numbers (2 4 5 6)")
    add("--scale-down", type=positive, default=20.0, help="seconds before workers leave (20)")
    add("--simulated", action="store_true", help="on the simulated plant, without Spark")
    add("--seed", type=int, default=1, help="of the simulated plant (1)")
    add("--json", action="store_true", help="print JSON, one line for each")
    add("--plot", type=Path, metavar="FILE", help="where a picture goes")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_autoscale)


def run_autoscale(args: argparse.Namespace) -> int:
    """Run, print, draw."""
    from anabranch.loadtest.picture_source import note_source
    from anabranch.loadtest.scaled_plot import plot_comparison
    from anabranch_bench.experiments.autoscale import (
        AutoscaleBench,
        from_json,
        run_ways,
        simulate_ways,
        table,
        telling,
    )

    check_folders(args, "plot")
    if args.stored:
        check_alone(args, "json")
        head, *lines = read_stored(args.stored, "autoscale")
        print(f"From {args.stored}, made {head['machine']['made']}.")
        runs = [from_json(line) for line in lines if "run" in line]
    else:
        if not args.simulated:
            check_java()
        settings = settings_of(AutoscaleBench, args, static=tuple(args.static))
        print_head("autoscale", settings, args.json)
        runs = []
        found = simulate_ways(settings, args.seed) if args.simulated else run_ways(settings)
        for run in found:
            runs.append(run)
            print_result(run.line(), {"run": run.to_json()} if args.json else None)
    if not args.json:
        print(*table(runs), sep="\n")
    if args.plot:
        plot_comparison(telling(runs), args.plot)
        note_source(args.plot, args.stored)
    return int(any(run.wrong for run in runs))
