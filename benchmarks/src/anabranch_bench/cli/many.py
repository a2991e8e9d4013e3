"""`anabranch bench many`: the coordinator's work with many workers, lanes and key groups."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count
from anabranch.cli.progress import show_progress
from anabranch.errors import InvalidArgument
from anabranch_bench.cli.experiment import (
    FROM,
    print_each,
    print_head,
    settings_of,
    stored_results,
)

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers

SIZES = ("10/10/256", "100/100/4096", "1000/1000/32768")


@dataclass(frozen=True)
class ManySettings:
    """What was asked for."""

    sizes: list[str]
    batches: int
    folder: bool


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    parser = kinds.add_parser(
        "many",
        help="the coordinator's work with 1,000 workers, 1,000 lanes and 32,768 key groups",
        description=(
            "CPU of the coordinator for each begin and finish of a lane, bytes of manifests and "
            "requests to the store. Lanes and workers are scripted, in one process."
        ),
        epilog="example: anabranch bench many --sizes 1000/999/32768 --batches 4",
    )
    add = parser.add_argument
    add("--sizes", nargs="+", default=list(SIZES), metavar="WORKERS/LANES/GROUPS", help="which (3)")
    add("--batches", type=count, default=8, help="batches after the first one (8)")
    add("--folder", action="store_true", help="state in a folder (objects in memory)")
    add("--json", action="store_true", help="print JSON, one line for each size")
    parser.add_argument("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_many)


def run_many(args: argparse.Namespace) -> int:
    """Run and print; the exit code says whether a lane costs as little as it may."""
    from anabranch_bench.experiments.many_workers import Size, SizeCost, measure

    if args.stored:
        found = print_each(stored_results(args, "many", "size", SizeCost.from_json), str, False)
    else:
        settings = settings_of(ManySettings, args)
        sizes = [Size(*_numbers(text)) for text in settings.sizes]
        print_head("many", settings, args.json)
        results = (measure(size, args.batches, args.folder, show_progress) for size in sizes)
        found = print_each(results, str, args.json)
    return 0 if all(one.meets_goal for one in found) else 1


def _numbers(text: str) -> tuple[int, int, int]:
    try:
        workers, lanes, groups = map(int, text.split("/"))
    except ValueError as error:
        raise InvalidArgument(f"--sizes: {text} is not WORKERS/LANES/GROUPS.") from error
    if not 0 < lanes <= groups or not 0 < workers <= groups:
        raise InvalidArgument(f"--sizes: {text} needs a key group for each worker and lane.")
    return workers, lanes, groups
