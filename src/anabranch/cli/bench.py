"""`anabranch bench`: measurements beside Spark's own operators, in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from anabranch.cli.java import check_java

if TYPE_CHECKING:
    from anabranch.bench.throughput import Comparison
    from anabranch.cli.main import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "bench",
        help="compare with Spark's own operators",
        description="Measure Anabranch and Spark's own operators in one run, on the same data.",
    )
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    throughput = kinds.add_parser(
        "throughput",
        help="rows a second, small batches, memory a key, restart with a large state",
        description="Key-count on both sides; state is durable before commit on both.",
        epilog="example: anabranch bench throughput --parts aggregate small",
    )
    parts = ("aggregate", "rows", "small", "memory", "restart")
    throughput.add_argument(
        "--parts", nargs="+", choices=parts, default=list(parts), help="what to measure (all)"
    )
    throughput.add_argument("--rows", type=int, default=500_000, help="rows a batch (500000)")
    throughput.add_argument("--keys", type=int, default=500_000, help="number of keys (500000)")
    throughput.add_argument("--batches", type=int, default=5, help="warm batches measured (5)")
    throughput.add_argument(
        "--native-rows",
        type=int,
        default=500_000,
        help="rows a batch for Spark's Python operator, which needs minutes for 500000",
    )
    throughput.add_argument("--large-keys", type=int, default=5_000_000, help="keys of the state")
    throughput.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    throughput.add_argument("--json", action="store_true", help="print JSON, one line for each")
    throughput.set_defaults(run=run_throughput)


def run_throughput(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether all targets were met."""
    check_java()
    from anabranch.bench.session import spark_session
    from anabranch.bench.throughput import Settings, ThroughputBench

    settings = Settings(
        rows=args.rows,
        keys=args.keys,
        batches=args.batches,
        native_rows=args.native_rows,
        large_keys=args.large_keys,
        workers=args.workers,
    )
    passed = True
    with spark_session() as (spark, folder):
        bench = ThroughputBench(spark, folder, settings, _progress)
        for comparison in bench.run(args.parts):
            passed &= comparison.passed
            _clear_progress()
            print(json.dumps(comparison.to_json()) if args.json else _line(comparison), flush=True)
    return 0 if passed else 1


def _line(comparison: Comparison) -> str:
    def side(values: tuple[float, ...]) -> str:
        if not values:
            return "-"
        ordered = sorted(values)
        median = ordered[len(ordered) // 2]
        return f"{_number(median)} [{_number(ordered[0])} to {_number(ordered[-1])}]"

    ratio = "" if comparison.ratio is None else f"  ratio {comparison.ratio:.2f}"
    note = f"  ({comparison.note})" if comparison.note else ""
    verdict = "met" if comparison.passed else "MISSED"
    return (
        f"{comparison.part:<10} Anabranch {side(comparison.ours)}  Spark {side(comparison.spark)} "
        f"{comparison.unit}{ratio}\n{'':<10} target: {comparison.target}: {verdict}{note}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
