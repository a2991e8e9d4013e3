"""`anabranch bench checkpoints`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
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
    from anabranch_bench.experiments.checkpoint_modes import ModeResult


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    from anabranch.processes.worker_config import CHECKPOINTS

    parser = kinds.add_parser(
        "checkpoints",
        help="what each checkpoint mode costs, and what a move and a restart take under it",
        description=(
            "Key-count with a payload, the same load for every mode: capacity, latency, bytes "
            "written, the peak while state moves that rows wait for (strategy order-unaware), and "
            "a restart. All modes but unaligned are aligned: their batches wait for that state."
        ),
        epilog="example: anabranch bench checkpoints --modes changelog unaligned",
    )
    parser.add_argument(
        "--modes", nargs="+", choices=CHECKPOINTS, default=list(CHECKPOINTS), help="which (all)"
    )
    parser.add_argument("--state-gb", type=positive, default=0.5, help="size of the state (0.5)")
    parser.add_argument("--rate", type=positive, help="rows a second (a third of the capacity)")
    parser.add_argument("--seconds", type=positive, default=8.0, help="steady load (8)")
    parser.add_argument("--repeat", type=count, default=1, help="runs of each mode (1)")
    parser.add_argument("--json", action="store_true", help="print JSON, one line for each run")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_checkpoints)


def run_checkpoints(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether every mode was seen at work."""
    from anabranch_bench.experiments.checkpoint_modes import (
        CheckpointsBench,
        CheckpointSettings,
        ModeResult,
    )

    if args.stored:
        stored = stored_results(args, "checkpoints", "mode", ModeResult.from_json)
        return _judge(print_each(stored, str, False), False)
    check_java()
    from anabranch.loadtest.session import spark_session

    settings = settings_of(CheckpointSettings, args)
    print_head("checkpoints", settings, args.json)
    with spark_session() as (spark, folder):
        bench = CheckpointsBench(spark, folder, settings, show_progress)
        results = print_each(bench.run(args.modes), str, args.json)
    return _judge(results, args.json)


def _judge(results: Sequence[ModeResult], as_json: bool) -> int:
    from anabranch_bench.experiments.checkpoint_modes import doubts, peak_ratio

    ratio, found = peak_ratio(results), doubts(results)
    if as_json:
        print(json.dumps({"peak_unaligned_to_aligned": ratio, "doubts": found}))
    else:
        if ratio is not None:
            print(f"peak while state moves: unaligned {ratio:.2f} times aligned")
        print(*found, sep="\n", end="\n" * bool(found))
    return 1 if found else 0
