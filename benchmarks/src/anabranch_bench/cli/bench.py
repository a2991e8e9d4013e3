"""`anabranch bench`: measurements beside Spark's own operators, in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_bench.cli import (
    autoscale,
    backends,
    checkpoint_modes,
    cluster,
    encryption,
    evaluation,
    hybrid,
    many,
    observe,
    recovery,
    rescale,
    throughput,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers

BENCHMARKS = (
    throughput,
    rescale,
    evaluation,
    backends,
    checkpoint_modes,
    recovery,
    hybrid,
    many,
    observe,
    encryption,
    cluster,
    autoscale,
)


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "bench",
        help="compare with Spark's own operators",
        description="Measure Anabranch and Spark's own operators in one run, on the same data.",
    )
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    for benchmark in BENCHMARKS:
        benchmark.register(kinds)
