"""`anabranch bench cluster`: moves over slow links, and the loss of a host, on a Spark cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
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
    settings_of,
    stored_results,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.results.run_result import RunResult
    from anabranch_bench.results.verdicts import SideBySide

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
    """Run and print; the exit code says whether all was right, and no loss longer than Spark's."""
    from anabranch.migration.strategies import STRATEGIES, check
    from anabranch_bench.experiments.cluster import ClusterBench, ClusterSettings
    from anabranch_bench.results.stored_runs import runs_from_json
    from anabranch_bench.results.verdicts import SideBySide
    from anabranch_bench.testbed.namespaces import why_not

    if args.stored:
        moves = stored_results(args, "cluster", "strategy", dict)
        losses = stored_results(args, "cluster", "anabranch", SideBySide.from_json)
        return _shown(print_each([*runs_from_json(moves).runs, *losses], line, False))
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
        found = print_each(bench.run(), line, args.json)
    return _code(found) if args.json else _shown(found)


def line(result: RunResult | SideBySide) -> str:
    """A result for people."""
    from anabranch.protocol.move_parts import ACROSS_HOSTS
    from anabranch_bench.experiments.cluster import BYTES_ACROSS
    from anabranch_bench.reports.report import side_by_side_line, summary_line
    from anabranch_bench.results.run_result import RunResult

    if not isinstance(result, RunResult):
        return side_by_side_line(result)
    report = result.report
    if BYTES_ACROSS not in report:
        return summary_line(result)
    state, sent = report["counters"].get(ACROSS_HOSTS, 0) / 1e6, report[BYTES_ACROSS] / 1e6
    across = f"{state:,.1f} MB of state across hosts ({sent:,.0f} MB through network cards)"
    return f"{summary_line(result)}, {across}"


def _shown(found: Iterable[RunResult | SideBySide]) -> int:
    """The tables of each link, and the exit code."""
    from anabranch_bench.reports.run_tables import failures, strategies
    from anabranch_bench.results.comparison import RunSet
    from anabranch_bench.results.run_result import RunResult

    results = list(found)
    runs = RunSet(result for result in results if isinstance(result, RunResult))
    for link in dict.fromkeys(run.part for run in runs.runs):
        table = strategies(f"2 -> 4 workers on four hosts, links of {link}", runs.of_part(link))
        print(f"\n{table.markdown()}")
    if (failed := failures(runs)).rows:
        print(f"\n{failed.markdown()}")
    return _code(results)


def _code(found: Iterable[RunResult | SideBySide]) -> int:
    """Whether something is wrong, or takes longer than with Spark."""
    from anabranch_bench.results.run_result import RunResult

    return int(
        not all(r.is_right and not r.error if isinstance(r, RunResult) else r.passed for r in found)
    )
