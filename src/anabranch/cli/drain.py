"""`anabranch drain`: empty a worker, then end it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.asking import ask, command, with_move_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "drain", "move everything off a worker and end it")
    parser.add_argument("worker", help="its name")
    with_move_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    return ask(args, {"kind": "drain", "worker": args.worker})
