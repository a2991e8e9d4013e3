"""`anabranch cancel`: take the running reconfiguration back."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from anabranch.cli.asking import (
    agrees,
    begun,
    command,
    follow,
    line,
    reaching,
    with_change_options,
)

if TYPE_CHECKING:
    from anabranch.http.client import ServiceClient

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "cancel", "take a reconfiguration back")
    parser.add_argument("number", type=int, nargs="?", help="which one (default: the running one)")
    with_change_options(parser)
    parser.set_defaults(run=run)


@reaching
def run(args: argparse.Namespace) -> int:
    """Ask the service for the way back."""
    from anabranch.http.client import ServiceClient

    client = ServiceClient.of(args.location)
    move = _chosen(client, args.number)
    if move is None:
        print("anabranch: no reconfiguration is running.", file=sys.stderr)
        return 2
    if args.dry_run:
        print(json.dumps(move) if args.json else f"would take back:\n{line(move)}")
        return 0
    if not args.yes:
        print(line(move), file=sys.stderr)
        if not agrees():
            return 2
    back = client.post(f"/moves/{move['number']}/cancel")
    return follow(client, back, args) if args.wait else begun(back, args)


def _chosen(client: ServiceClient, number: int | None) -> Any:
    if number is not None:
        return client.get(f"/moves/{number}")
    running = [move for move in client.get("/moves") if not move["is_done"]]
    return running[-1] if running else None
