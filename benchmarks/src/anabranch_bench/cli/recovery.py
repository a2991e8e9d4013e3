"""`anabranch bench recovery`: restarts with states of several sizes, beside Spark's own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count, positive
from anabranch.cli.java import check_java
from anabranch.cli.progress import show_progress
from anabranch.state.scratch import Scratch
from anabranch_bench.cli.experiment import (
    FROM,
    print_each,
    print_head,
    settings_of,
    stored_results,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.experiments.recovery import Recovery


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "recovery",
        help="the first commit after a crash of everything, by the size of the state",
        description=(
            "Key-count with a payload. For each size of the state, the driver, its JVM and all "
            "workers are killed (SIGKILL) in the middle of a batch. Then a new driver starts. "
            "Measures the time from its ready Spark session to the first committed batch. Sides: "
            "what is needed is read first (hybrid), all state first (local), Spark's own operator."
        ),
        epilog="example: anabranch bench recovery --state-gb 0.25 1 --sides hybrid spark",
    )
    add = parser.add_argument
    add("--state-gb", nargs="+", type=positive, metavar="GB", default=[0.5, 1.0, 2.0, 4.0])
    add("--sides", nargs="+", choices=("hybrid", "local", "spark"), help="which ones (all)")
    add("--rows", type=count, default=1_000, help="rows of the first batch (1000)")
    add("--repeat", type=count, default=3, help="restarts with each state (3)")
    add("--workers", type=count, default=2, help="worker processes (2)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_recovery)


def run_recovery(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether the time grows with the state."""
    from anabranch_bench.experiments.recovery import (
        SIDES,
        Recovery,
        RecoveryBench,
        RecoverySettings,
    )

    if args.stored:
        stored = stored_results(args, "recovery", "side", Recovery.from_json)
        return _judge(print_each(stored, Recovery.line, False), False)
    check_java()
    sizes, sides = tuple(sorted(args.state_gb)), tuple(args.sides or SIDES)
    settings = settings_of(RecoverySettings, args, state_gb=sizes, sides=sides)
    print_head("recovery", settings, args.json)
    with closing(Scratch()) as scratch:
        bench = RecoveryBench(scratch.path, settings, show_progress)
        found = print_each(bench.run(), Recovery.line, args.json)
    return _judge(found, args.json)


def _judge(found: Sequence[Recovery], as_json: bool) -> int:
    from anabranch_bench.experiments.recovery import FLATNESS_MAX, flatness, judge_flatness

    verdict = judge_flatness(found)
    if verdict.passed is None:
        return 0
    shown = {"ratio_of_ends": flatness(found), "target": FLATNESS_MAX, "passed": verdict.passed}
    print(json.dumps(shown) if as_json else verdict)
    return 0 if verdict.passed else 1
