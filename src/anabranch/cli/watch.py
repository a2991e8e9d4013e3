"""`anabranch watch`: a running service in the terminal, live."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from anabranch.cli.arguments import seconds
from anabranch.cli.asking import EXIT_NOT_RUNNING, command, reaching

if TYPE_CHECKING:
    from anabranch.cli.watch_view import WatchSample
    from anabranch.http.client import ServiceClient

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EVENTS_SHOWN = 8
EVENTS_SECONDS = 3600.0
OFTEN = ("batch", "load")
CALL_SECONDS_MAX = 10.0
SILENT_SECONDS_MAX = 15.0
"""A service that answers nothing for so long is given up."""


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "watch", "a running service in the terminal, live")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="T", help="between two looks (1s)"
    )
    parser.add_argument("--once", action="store_true", help="show one picture, and end")
    parser.set_defaults(run=run)


@reaching
def run(args: argparse.Namespace) -> int:
    """Look and draw until Ctrl-C, or until the service is gone."""
    from anabranch.http.client import ServiceClient

    client = ServiceClient.of(args.location, CALL_SECONDS_MAX)
    if args.json:
        return _as_json(client, args)
    try:
        from rich.console import Console
        from rich.live import Live

        from anabranch.cli.watch_view import view
    except ImportError as error:
        from anabranch.errors import needs_extra

        raise needs_extra("anabranch watch needs Rich", "ui") from error
    console = Console()
    before, now = None, sample(client)
    if args.once or not console.is_terminal:
        console.print(view(args.location, now, before))
        return 0
    with Live(view(args.location, now, before), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(args.interval)
            found, trouble = _next(client)
            if found is not None:
                before, now = now, found
            elif time.time() - now.at > SILENT_SECONDS_MAX:
                break
            live.update(view(args.location, now, before, trouble), refresh=True)
    print(f"anabranch: {trouble} `anabranch status {args.location}` says more.", file=sys.stderr)
    return EXIT_NOT_RUNNING


def _next(client: ServiceClient) -> tuple[WatchSample | None, str]:
    from anabranch.errors import ServiceUnavailable

    try:
        return sample(client), ""
    except ServiceUnavailable as error:
        return None, error._message


def sample(client: ServiceClient) -> WatchSample:
    """Ask for everything that is shown."""
    from datetime import datetime

    from anabranch.cli.history import line
    from anabranch.cli.watch_view import WatchSample

    now = time.time()
    status, moves = client.get("/status"), client.get("/moves")
    rows = client.get("/history", since=now - EVENTS_SECONDS)
    told = [row for row in rows if row["kind"] not in OFTEN][-EVENTS_SHOWN:]
    events = [line({**row, "time": datetime.fromisoformat(row["time"])}) for row in told]
    return WatchSample(now, status, moves, events)


def _as_json(client: ServiceClient, args: argparse.Namespace) -> int:
    """A line for each look, for programs."""
    while True:
        status, moves = client.get("/status"), client.get("/moves")
        print(json.dumps({"time": time.time(), "status": status, "moves": moves}), flush=True)
        if args.once:
            return 0
        time.sleep(args.interval)
