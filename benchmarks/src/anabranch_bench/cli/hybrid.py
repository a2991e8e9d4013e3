"""`anabranch bench hybrid`: three ways to keep state, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count, positive
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

STATES = ("local", "hybrid", "remote")


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "hybrid",
        help="all state in memory, a part of it, or nothing between batches",
        description=(
            "Key-count with a payload, most rows of few keys, on the same state with "
            'state="local", "hybrid" (under a memory limit) and "remote". Measures latency, '
            "throughput, memory, hit rate, and a move from 2 to 3 workers."
        ),
        epilog="example: anabranch bench hybrid --state-gb 1 --limit-share 0.3",
    )
    add = parser.add_argument
    add("--states", nargs="+", choices=STATES, default=list(STATES), help="which ones (all)")
    add("--state-gb", type=positive, default=0.25, help="size of the state (0.25)")
    add("--limit-share", type=positive, default=0.4, help="memory limit, as a share of it (0.4)")
    add("--rows", type=count, default=10_000, help="rows a batch (10000)")
    add("--batches", type=count, default=20, help="batches measured (20)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_hybrid)


def run_hybrid(args: argparse.Namespace) -> int:
    """Run and print."""
    from anabranch_bench.experiments.hybrid import HybridBench, HybridResult, HybridSettings

    if args.stored:
        stored = stored_results(args, "hybrid", "state", HybridResult.from_json)
        print_each(stored, HybridResult.line, False)
        return 0
    check_java()
    from anabranch.loadtest.session import spark_session

    settings = settings_of(HybridSettings, args)
    print_head("hybrid", settings, args.json)
    with spark_session() as (spark, folder):
        bench = HybridBench(spark, folder, settings, show_progress)
        print_each(bench.run(tuple(args.states)), HybridResult.line, args.json)
    return 0
