"""`anabranch rescale`: another number of workers for a running service."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count
from anabranch.cli.asking import ask, command, with_move_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "rescale", "change the number of workers of a running service")
    parser.add_argument("workers", type=count, help="the wanted number")
    parser.add_argument("--hosts", nargs="+", metavar="HOST", help="spread them over these hosts")
    parser.add_argument(
        "--assignment", choices=["minimal", "range"], help="of key groups (default: minimal)"
    )
    with_move_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    given = {"hosts": args.hosts, "assignment": args.assignment}
    how = {name: value for name, value in given.items() if value is not None}
    return ask(args, {"kind": "rescale", "workers": args.workers, **how})
