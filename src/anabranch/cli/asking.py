"""What the commands that change a running service have in common: say, ask, begin, wait."""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import count, positive, seconds
from anabranch.migration.strategies import STRATEGIES

if TYPE_CHECKING:
    from anabranch.http.client import ServiceClient

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_NOT_RUNNING = 3
EXIT_FAILED = 4
"""The reconfiguration failed, or was taken back."""
EXIT_TIMED_OUT = 5

EXITS = """\
exit codes: 0 done (or begun), 2 refused, 3 no service runs, 4 failed or taken back, 5 timed out
"""
ROLLBACK, CONTINUE = "rollback", "continue"
LOOK_SECONDS = 0.3
BACK_SECONDS_MAX = 30.0
"""After its time, a command waits no longer for a move to be taken back."""


def command(subparsers: Subparsers, name: str, text: str) -> argparse.ArgumentParser:
    """A subcommand on a location."""
    parser = subparsers.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}. The service continues meanwhile.",
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("location", help="folder or URI of the state")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def with_move_options(parser: argparse.ArgumentParser) -> None:
    """Options of everything that moves key groups."""
    parser.add_argument("--strategy", choices=list(STRATEGIES), help='default: "live"')
    parser.add_argument("--bytes-per-second", type=count, metavar="N", help="limit for copies")
    parser.add_argument(
        "--latency-target", type=positive, metavar="S", help="seconds a batch may take"
    )
    parser.add_argument(
        "--if-routing-version", type=int, metavar="V", help="refuse if it has changed"
    )
    parser.add_argument(
        "--on-timeout",
        choices=[ROLLBACK, CONTINUE],
        default=ROLLBACK,
        help="take it back (default), or only wait no longer",
    )
    with_change_options(parser)


def with_change_options(parser: argparse.ArgumentParser) -> None:
    """Options of everything that changes something."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--wait", action="store_true", help="return at the end of it")
    parser.add_argument("--timeout", type=seconds, metavar="T", help="at most 30s, 2m, ...")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def reaching(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that needs a running service: without one it has an exit code of its own."""

    @functools.wraps(run)
    def reached(args: argparse.Namespace) -> int:
        from anabranch.errors import NotRunning

        try:
            return run(args)
        except NotRunning as error:
            print(f"anabranch: {error}", file=sys.stderr)
            return EXIT_NOT_RUNNING

    return reached


def ask(args: argparse.Namespace, wanted: Mapping[str, Any]) -> int:
    """Begin a reconfiguration as the options say."""
    return reaching(lambda given: _ask(given, wanted))(args)


def _ask(args: argparse.Namespace, wanted: Mapping[str, Any]) -> int:
    from anabranch.http.client import ServiceClient

    given = {
        "strategy": args.strategy,
        "bytes_per_second": args.bytes_per_second,
        "latency_target": args.latency_target,
        "if_routing_version": args.if_routing_version,
        "timeout_s": args.timeout,
        "on_timeout": None if args.timeout is None else args.on_timeout,
    }
    request = {**wanted, **{name: value for name, value in given.items() if value is not None}}
    client = ServiceClient.of(args.location)
    if args.dry_run or not args.yes:
        forecast = client.post("/moves", {**request, "dry_run": True})
        if args.dry_run:
            print(json.dumps(forecast) if args.json else forecast["text"])
            return 0
        print(forecast["text"].replace(" (nothing was done)", ""), file=sys.stderr)
        if not agrees():
            return 2
    move = client.begin(request)
    return follow(client, move, args) if args.wait else begun(move, args)


def agrees() -> bool:
    """Ask the person; without one, nothing is done."""
    if not sys.stdin.isatty():
        print("anabranch: nothing was done. Say --yes to do it.", file=sys.stderr)
        return False
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    # no limit: a person answers
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def begun(move: Mapping[str, Any], args: argparse.Namespace) -> int:
    """Say that it runs."""
    if args.json:
        print(json.dumps(move))
    else:
        where = args.location
        print(f"reconfiguration {move['number']} has begun: anabranch moves {where} shows it")
    return 0


def follow(client: ServiceClient, move: dict[str, Any], args: argparse.Namespace) -> int:
    """Show how far it is until its end, or until the time is over."""
    deadline = math.inf if args.timeout is None else time.monotonic() + args.timeout
    # The service takes a move back at its time, and says so a moment later.
    patience = 0.0 if getattr(args, "on_timeout", CONTINUE) == CONTINUE else BACK_SECONDS_MAX
    while not move["is_done"]:
        if time.monotonic() > deadline + patience:
            print(json.dumps(move) if args.json else line(move))
            return EXIT_TIMED_OUT
        if sys.stderr.isatty():
            print(f"\r{move['strategy']}: {move['progress']:4.0%}", end="", file=sys.stderr)
        time.sleep(LOOK_SECONDS)
        move = client.get(f"/moves/{move['number']}")
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    print(json.dumps(move) if args.json else line(move))
    if move["outcome"] == "done":
        return 0
    return EXIT_TIMED_OUT if time.monotonic() > deadline else EXIT_FAILED


def line(move: Mapping[str, Any]) -> str:
    """A reconfiguration in a line."""
    before, after = len(move["workers_before"]), len(move["workers_after"])
    how_far = "" if move["is_done"] else f" {move['progress']:.0%}"
    return (
        f"{move['number']:>4}  {move['started'][:19].replace('T', ' ')}  {move['strategy']}: "
        f"{before} -> {after} workers, {move['outcome']}{how_far}, {move['groups']} key groups, "
        f"{move['bytes']:,} bytes, {move['seconds']:.2f} s, longest pause "
        f"{1000 * move['pause_seconds']:.0f} ms, asked by {move['cause']}"
    )
