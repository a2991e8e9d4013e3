"""`anabranch bench throughput`: rows a second beside Spark's own operators, and what they need."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.java import check_java
from anabranch.cli.progress import show_progress
from anabranch_bench.cli.experiment import (
    FROM,
    print_each,
    print_head,
    settings_of,
    stored_results,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "throughput",
        help="rows a second, small batches, memory a key, restart with a large state",
        description="Key-count on both sides; state is durable before commit on both.",
        epilog="example: anabranch bench throughput --parts aggregate small",
    )
    add, parts = parser.add_argument, ("aggregate", "rows", "small", "memory", "restart")
    add("--parts", nargs="+", choices=parts, default=list(parts), help="what to measure (all)")
    add("--rows", type=int, default=500_000, help="rows a batch (500000)")
    add("--keys", type=int, default=500_000, help="number of keys (500000)")
    add("--batches", type=int, default=5, help="warm batches measured (5)")
    add(
        "--native-rows",
        type=int,
        default=500_000,
        help="rows a batch for Spark's Python operator, which needs minutes for 500000",
    )
    add("--large-keys", type=int, default=5_000_000, help="keys of the state")
    add("--workers", type=int, default=2, help="worker processes (2)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_throughput)


def run_throughput(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether all targets were met."""
    from anabranch_bench.reports.report import side_by_side_line
    from anabranch_bench.results.verdicts import SideBySide

    if args.stored:
        stored = stored_results(args, "throughput", "part", SideBySide.from_json)
        found = print_each(stored, side_by_side_line, False)
        return 0 if all(one.passed for one in found) else 1
    check_java()
    from anabranch.loadtest.session import spark_session
    from anabranch_bench.experiments.throughput import ThroughputBench, ThroughputSettings

    settings = settings_of(ThroughputSettings, args)
    print_head("throughput", settings, args.json)
    with spark_session() as (spark, folder):
        bench = ThroughputBench(spark, folder, settings, show_progress)
        found = print_each(bench.run(args.parts), side_by_side_line, args.json)
    return 0 if all(one.passed for one in found) else 1
