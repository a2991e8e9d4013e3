"""`anabranch place`: move all state of a site to a host, a label or a worker."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.asking import ask, command, with_move_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "place", "move all state of a site to a host, a label or a worker")
    parser.add_argument("site", help="a value of the column that placed_by names")
    parser.add_argument(
        "--on", metavar="PLACE", help="a host, a label such as rack=3, a worker (default: anywhere)"
    )
    with_move_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    named = {} if args.on is None else {"on": args.on}
    return ask(args, {"kind": "place", "site": args.site, **named})
