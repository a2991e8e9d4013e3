"""`anabranch bench cluster`: moves over slow links, and the loss of a host, on a Spark cluster."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count, positive
from anabranch.cli.java import check_java
from anabranch.cli.progress import show_progress
from anabranch.errors import InvalidArgument
from anabranch.state.scratch import Scratch
from anabranch_bench.cli.demo_cluster import NEEDED
from anabranch_bench.cli.experiment import (
    FROM,
    print_each,
    print_head,
    read_stored,
    settings_of,
    stored_results,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.experiments.cluster import ClusterMove, HostLoss

LOSSES = {"executor": "executor killed", "host": "host cut off"}


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "cluster",
        help="moves over links of 1 Gb/s and 100 Mb/s; the loss of a host, beside Spark's own",
        description=(
            "A standalone Spark cluster of four namespaced hosts on this machine (root). A "
            "key-count with a payload goes from 2 to 4 workers over them, with every strategy and "
            "links of each speed. Then a host of three is lost: how long no batch ends, and how "
            "long with Spark's own operator. All results are checked."
        ),
        epilog="example: anabranch bench cluster --links 100mbit --strategies live pause",
    )
    add = parser.add_argument
    add("--links", nargs="*", default=["1gbit", "100mbit"], help="speeds, as `tc` writes them")
    add("--strategies", nargs="+", help="which ones (all)")
    add("--losses", nargs="*", choices=tuple(LOSSES), default=list(LOSSES), help="which ones")
    add("--keys", type=count, default=100_000, help="with 1,000 bytes each (100,000)")
    add("--rate", type=positive, default=4_000.0, help="rows a second (4,000)")
    add("--seconds", type=positive, default=8.0, help="steady load before and after a move (8)")
    add("--repeat", type=count, default=1, help="runs of each (1)")
    add("--json", action="store_true", help="print JSON, one line for each")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether all moves were done and all results right."""
    from anabranch.migration.strategies import STRATEGIES, check
    from anabranch_bench.experiments.cluster import (
        ClusterBench,
        ClusterMove,
        ClusterSettings,
        HostLoss,
    )
    from anabranch_bench.testbed.namespaces import why_not

    if args.stored:
        head = read_stored(args.stored, "cluster")[0]
        moves = stored_results(args, "cluster", "strategy", ClusterMove.from_json)
        losses = stored_results(args, "cluster", "side", HostLoss.from_json)
        print(f"{head['settings']['keys']:,} keys, {head['settings']['rate']:,.0f} rows a second")
        stored: list[ClusterMove | HostLoss] = [*moves, *losses]
        print_each(stored, _line, False)
        return int(not all(result.is_right for result in stored))
    strategies = tuple(args.strategies or STRATEGIES)
    for strategy in strategies:
        check(strategy, {})
    check_java()
    if reason := why_not():
        raise InvalidArgument(NEEDED.format(reason=reason))
    settings = settings_of(
        ClusterSettings,
        args,
        links=tuple(args.links),
        strategies=strategies,
        losses=tuple(LOSSES[name] for name in args.losses),
    )
    print_head("cluster", settings, args.json)
    with closing(Scratch()) as scratch:
        bench = ClusterBench(scratch.path, settings, show_progress)
        found = print_each(bench.run(), _line, args.json)
    return int(not all(result.is_right for result in found))


def _line(result: ClusterMove | HostLoss) -> str:
    return result.line()
