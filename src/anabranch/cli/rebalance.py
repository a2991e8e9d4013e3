"""`anabranch rebalance`: share key groups out by their load."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.asking import ask, command, with_move_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "rebalance", "share key groups out by their measured load")
    with_move_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    return ask(args, {"kind": "rebalance"})
