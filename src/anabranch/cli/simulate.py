"""`anabranch simulate`: the protocol against crashes, delays and duplicates, from seeds."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FAILURES_MAX = 5


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "simulate", help="run the protocol against crashes, delays and duplicates from a seed"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=count, default=1000, metavar="N", help="scenarios to run")
    which.add_argument("--seed", type=int, metavar="S", help="run one seed and show its trace")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="first seed of --seeds")
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="workers on hosts that fail, and a network that swallows",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the scenarios; 0 if all were equal to their oracle."""
    return _run_one(args) if args.seed is not None else _run_many(args)


def _run_one(args: argparse.Namespace) -> int:
    from anabranch.simulation.scenario import run_seed

    result = run_seed(args.seed, keep_trace=True, hosts=args.hosts)
    if args.json:
        fields = {"seed": args.seed, "steps": result.steps, "trace_hash": result.trace_hash}
        print(json.dumps({**fields, "failure": result.failure, "trace": result.trace}))
    else:
        print("\n".join(result.trace))
        outcome = result.failure or "equal to the oracle"
        print(f"seed {args.seed}: {result.steps} steps, trace {result.trace_hash}: {outcome}")
    return 0 if result.failure is None else 1


def _run_many(args: argparse.Namespace) -> int:
    from anabranch.simulation.runner import describe, run_seeds

    started = time.perf_counter()
    summary = run_seeds(range(args.first, args.first + args.seeds), FAILURES_MAX, args.hosts)
    seconds = time.perf_counter() - started
    if args.json:
        print(json.dumps({**summary.as_json(), "seconds": round(seconds, 3)}))
        return 0 if summary.is_ok else 1
    for failure in summary.failures:
        print(describe(failure))
    rate = summary.scenarios / seconds if seconds else 0.0
    print(
        f"{summary.scenarios} scenarios, {summary.steps} steps, {seconds:.1f} s "
        f"({rate:.0f} a second): {len(summary.failures) or 'no'} failed"
    )
    return 0 if summary.is_ok else 1
