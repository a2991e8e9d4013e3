"""`anabranch cancel`: take the running reconfiguration back."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from anabranch.cli.asking import EXIT_NOT_RUNNING, begun, command, follow

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "cancel", "take a reconfiguration back")
    parser.add_argument("number", type=int, nargs="?", help="which one (default: the running one)")
    parser.add_argument("--wait", action="store_true", help="return when all is as it was before")
    parser.set_defaults(run=run, timeout=None)


def run(args: argparse.Namespace) -> int:
    """Ask the service for the way back."""
    from anabranch.errors import NotRunning
    from anabranch.http.client import ServiceClient

    try:
        client = ServiceClient.of(args.location)
        number = args.number
        if number is None:
            running = [move["number"] for move in client.get("/moves") if not move["is_done"]]
            if not running:
                print("anabranch: no reconfiguration is running.", file=sys.stderr)
                return 2
            number = running[-1]
        back = client.post(f"/moves/{number}/cancel")
        return follow(client, back, args) if args.wait else begun(back, args)
    except NotRunning as error:
        print(f"anabranch: {error}", file=sys.stderr)
        return EXIT_NOT_RUNNING
