"""`anabranch bench observe`: what API, journal and metrics cost a batch."""

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


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "observe",
        help="CPU of a batch with API, journal and metrics, and without",
        description=(
            "Two services in one driver, some batches of the same query on each in turns: as users "
            "have it and scraped, and without API, journal and metrics. CPU seconds of the "
            "driver's Python, of the workers and of the JVM."
        ),
        epilog="example: anabranch bench observe --turns 20",
    )
    add = parser.add_argument
    add("--rows", type=count, default=50_000, help="rows a batch (50000)")
    add("--keys", type=count, default=100_000, help="distinct keys (100000)")
    add("--batches", type=count, default=10, help="batches of a turn (10)")
    add("--turns", type=count, default=10, help="turns of each kind (10)")
    add("--workers", type=count, default=2, help="workers of each service (2)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_observe)


def run_observe(args: argparse.Namespace) -> int:
    """Run and print."""
    from anabranch_bench.experiments.observe import (
        NoteCost,
        ObserveBench,
        ObservedTurn,
        ObserveSettings,
        note_cost,
        summary,
    )

    if args.stored:
        found = stored_results(args, "observe", "kind", ObservedTurn.from_json)
        print_each(found, ObservedTurn.line, False)
        print(*summary(found), sep="\n")
        return 0
    check_java()
    from anabranch.loadtest.session import spark_session

    settings = settings_of(ObserveSettings, args)
    print_head("observe", settings, args.json)
    with spark_session() as (spark, folder):
        print_each([note_cost(folder / "notes")], NoteCost.line, args.json)
        bench = ObserveBench(spark, folder, settings, show_progress)
        found = print_each(bench.run(), ObservedTurn.line, args.json)
    if not args.json:
        print(*summary(found), sep="\n")
    return 0
