"""The `anabranch` command: finds the subcommand, runs it, turns errors into one clear message.

A subcommand is a module with `register(subparsers)`: it adds its parser and sets `run=function`;
the function takes the parsed arguments, returns the exit code. COMMANDS names those of this package
and of anabranch-bench; any distribution adds its own by an entry point of the group GROUP.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
    Run = Callable[[argparse.Namespace], int]

COMMANDS = {
    "demo": "a streaming query that is rescaled while it runs, checked",
    "run": "a workload under load, rescaled while it runs, verified",
    "status": "whether a service runs on a location, and how it is",
    "history": "what happened to the services of a location",
    "ui": "the page of a service, also of one that has died",
    "rescale": "change the number of workers of a running service",
    "move": "move key groups of a running service to a worker",
    "drain": "move everything off a worker and end it",
    "rebalance": "share key groups out by their measured load",
    "autoscale": "let a running service find its number of workers, or see why it has so many",
    "moves": "list running and recent reconfigurations",
    "place": "move all state of a site to a host, a label or a worker",
    "standby": "keep replicas for a later rescale with rhino",
    "cancel": "take a reconfiguration back",
    "watch": "a running service in the terminal, live",
    "report": "a span of time as one page with pictures",
    "monitoring": "alert rules for Prometheus and a dashboard for Grafana",
    "state": "look into a state location, or export from it",
    "savepoint": "named copies of a location's state: list, create, copy, delete",
    "agent": "let this host run workers of a service",
    "demo-cluster": "a cluster of three hosts: rescaled, one host drained, one cut off, checked",
    "bench": "compare with Spark's own operators, on the same data",
    "simulate": "run the protocol against crashes and delays, from a seed",
    "doctor": "check that this machine can run Anabranch",
}
"""Every subcommand with its line in `anabranch --help`."""

DESCRIPTION = """\
Anabranch keeps the keyed state of PySpark Structured Streaming beside the dataflow,
so that a running query can be rescaled, rebalanced and recovered without a stop.
"""

EXAMPLES = """\
examples:
  anabranch doctor            can this machine run it?
  anabranch demo              see it work, in about a minute
  anabranch run nexmark --query q4 --rescale 3@10s --verify
"""

GROUP = "anabranch.commands"
"""Entry points: the name of a command, and its module."""

FROM_BENCH = ("run", "demo-cluster", "bench")
"""Commands of the distribution anabranch-bench: experiments and workloads."""
NOT_INSTALLED = (
    "anabranch: `anabranch {command}` is in the distribution anabranch-bench: "
    "pip install anabranch-bench (in a clone: pip install ./benchmarks)."
)

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
EXIT_TERMINATED = 143

SAME_SECONDS = 1.0
"""Signals so near each other are one: `timeout` sends each twice."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends like Ctrl-C, so that results so far are told and nothing is left behind."""


class _Version(argparse.Action):
    """Prints the version; looks it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"anabranch {version('anabranch')}")
        parser.exit()


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser; only the chosen subcommand's module is imported, so that help stays fast."""
    parser = argparse.ArgumentParser(
        prog="anabranch",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    added = added_commands()
    for name in dict.fromkeys([*COMMANDS, *added]):
        module = added.get(name, f"{__package__}.{name}")
        if name not in added and find_spec(module) is None:
            continue
        if name == chosen:
            import_module(module).register(subparsers)
        else:
            subparsers.add_parser(name, help=COMMANDS.get(name))
    return parser


def added_commands() -> dict[str, str]:
    """Commands of other distributions, with their modules."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    try:
        if chosen in FROM_BENCH and chosen not in added_commands():
            print(NOT_INSTALLED.format(command=chosen), file=sys.stderr)
            return EXIT_ERROR
        parser = build_parser(chosen)
        if not words:
            parser.print_help()
            return EXIT_ERROR
        args = parser.parse_args(words)
        with _terminable():
            return _run(args.run, args)
    except Terminated:
        return _ended("SIGTERM", EXIT_TERMINATED)
    except KeyboardInterrupt:
        return _ended("Ctrl-C", EXIT_INTERRUPTED)


def _ended(by: str, code: int) -> int:
    print(f"anabranch: ended by {by}.", file=sys.stderr)
    return code


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises Terminated, once: a second one, later, does not wait for anything."""
    first: float | None = None

    def terminate(*_: object) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic()
            raise Terminated
        if time.monotonic() - first > SAME_SECONDS:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(run: Run, args: argparse.Namespace) -> int:
    from anabranch.errors import AnabranchError

    try:
        return run(args)
    except AnabranchError as error:
        print(f"anabranch: {error}", file=sys.stderr)
        return EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
