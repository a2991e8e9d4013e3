"""`anabranch bench backends`: state larger than memory, beside Spark's own RocksDB."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count
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

PARTS = ("aggregate", "rows", "beyond", "beyond-rows")


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "backends",
        help='backend "rocksdb" beside Spark\'s RocksDB; state larger than memory',
        description=(
            "Key-count on both sides, state over RocksDB on both; then state of three times the "
            "memory that workers are given for it, with aggregates and in the row API."
        ),
        epilog="example: anabranch bench backends --parts beyond --state-memory-mb 128",
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (all)")
    add("--rows", type=count, default=500_000, help="rows a batch (500000)")
    add("--keys", type=count, default=1_000_000, help="number of keys (1000000)")
    add("--batches", type=count, default=5, help="warm batches measured (5)")
    add("--native-rows", type=count, default=50_000, help="... in part rows, compared (50000)")
    add("--beyond-batches", type=count, default=12, help="batches over the large state (12)")
    add("--beyond-rows", type=count, default=50_000, help="... with so many rows (50000)")
    add("--state-memory-mb", type=count, default=64, help="memory limit of each worker (64)")
    add("--workers", type=count, default=2, help="worker processes (2)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_backends)


def run_backends(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether all targets were met."""
    from anabranch_bench.reports.report import side_by_side_line
    from anabranch_bench.results.verdicts import SideBySide

    if args.stored:
        stored = stored_results(args, "backends", "part", SideBySide.from_json)
        found = print_each(stored, side_by_side_line, False)
        return 0 if all(one.passed for one in found) else 1
    from anabranch.state.backend import check_backend

    check_backend("rocksdb", args.state_memory_mb << 20, None)
    check_java()
    from anabranch.loadtest.session import spark_session
    from anabranch_bench.experiments.backends import BackendsBench, BackendSettings

    settings = settings_of(BackendSettings, args, state_memory_bytes=args.state_memory_mb << 20)
    print_head("backends", settings, args.json)
    with spark_session() as (spark, folder):
        bench = BackendsBench(spark, folder, settings, show_progress)
        found = print_each(bench.run(args.parts), side_by_side_line, args.json)
    return 0 if all(one.passed for one in found) else 1
