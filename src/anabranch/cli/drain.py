"""`anabranch drain`: empty a worker or a host, then end its processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.asking import ask, command, with_move_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "drain", "move everything off a worker and end it, or off a host")
    parser.add_argument("worker", nargs="?", help="its name")
    parser.add_argument("--host", metavar="HOST", help="all workers of this host instead")
    with_move_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    named = {"worker": args.worker, "host": args.host}
    return ask(args, {"kind": "drain", **{n: v for n, v in named.items() if v is not None}})
