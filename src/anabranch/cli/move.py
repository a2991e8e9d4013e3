"""`anabranch move`: some key groups to a worker."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.asking import ask, command, with_move_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "move", "move key groups of a running service to a worker")
    parser.add_argument("key_groups", type=int, nargs="+", metavar="GROUP", help="key groups")
    parser.add_argument("--to", required=True, metavar="WORKER", help="their new owner")
    with_move_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    return ask(args, {"kind": "move", "key_groups": args.key_groups, "to": args.to})
