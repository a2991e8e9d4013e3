"""`anabranch standby`: keep replicas for a later rescale with rhino."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from anabranch.cli.arguments import count
from anabranch.cli.asking import ask, command

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "standby", "keep replicas for a later rescale with rhino")
    parser.add_argument("workers", type=count, help="of that rescale")
    parser.add_argument("--bytes-per-second", type=count, metavar="N", help="limit for copies")
    parser.add_argument(
        "--if-routing-version", type=int, metavar="V", help="refuse if it has changed"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    # It has no end to wait for: the next request ends it, or `anabranch cancel`.
    parser.set_defaults(
        run=run, strategy=None, latency_target=None, timeout=None, on_timeout=None, wait=False
    )


def run(args: argparse.Namespace) -> int:
    """Ask the service."""
    return ask(args, {"kind": "standby", "workers": args.workers})
