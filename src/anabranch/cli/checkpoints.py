"""`anabranch bench checkpoints`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from anabranch.cli.java import check_java
from anabranch.cli.progress import clear_progress, show_progress

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    from anabranch.runtime.config import CHECKPOINTS

    parser = kinds.add_parser(
        "checkpoints",
        help="what each checkpoint mode costs, and what a move and a restart take under it",
        description=(
            "Key-count with a payload, the same load for every mode: capacity, latency, bytes "
            "written, the peak while a strategy that pauses moves state, and a restart."
        ),
        epilog="example: anabranch bench checkpoints --modes changelog unaligned",
    )
    parser.add_argument(
        "--modes", nargs="+", choices=CHECKPOINTS, default=list(CHECKPOINTS), help="which (all)"
    )
    parser.add_argument("--state-gb", type=float, default=0.25, help="size of the state (0.25)")
    parser.add_argument("--rate", type=float, help="rows a second (a third of the capacity)")
    parser.add_argument("--seconds", type=float, default=8.0, help="steady load (8)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each mode (1)")
    parser.add_argument("--json", action="store_true", help="print JSON, one line for each run")
    parser.set_defaults(run=run_checkpoints)


def run_checkpoints(args: argparse.Namespace) -> int:
    """Run and print."""
    check_java()
    from anabranch.bench.checkpoints import CheckpointsBench, Settings
    from anabranch.bench.session import spark_session

    settings = Settings(args.state_gb, 1024, args.rate, args.seconds, args.repeat)
    failed = False
    with spark_session() as (spark, folder):
        bench = CheckpointsBench(spark, folder, settings, show_progress)
        for result in bench.run(args.modes):
            failed |= bool(result.error)
            clear_progress()
            print(json.dumps(result.to_json()) if args.json else result, flush=True)
    return 1 if failed else 0
