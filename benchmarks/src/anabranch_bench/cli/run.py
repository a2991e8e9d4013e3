"""`anabranch run`: a workload under load, rescaled while it runs, compared with its oracle."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import check_folders, count, positive, seconds
from anabranch.cli.java import check_java
from anabranch.cli.progress import bar

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.results.run_result import RunResult
    from anabranch_bench.runs.loaded_run import Rescale, RunSettings
    from anabranch_bench.runs.under_load import Moment
    from anabranch_bench.workloads.contract import Family

BAR = 20
STILL_SECONDS = 5.0
"""After which a line is printed again though nothing has changed."""
EXIT_WRONG = 1
EXIT_INTERRUPTED = 130

EXAMPLES = """\
examples:
  anabranch run nexmark --query q4 --rescale 3@10s --verify
  anabranch run auction --rate 20000 --duration 60 --rescale 3@20s --rescale 2@40s
  anabranch run key-count --keys 1000000 --zipf 1.2 --preload --strategy meces --rescale 4@15s
"""


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    from anabranch_bench.workloads.registry import FAMILIES

    parser = subparsers.add_parser(
        "run",
        help="a workload under load, rescaled while it runs, verified",
        description=(
            "Runs a workload at a steady rate, whatever happens; latency counts from the time at "
            "which a row should have been sent. Rescales it on the way and, with --verify, "
            "compares its results with a plain computation over the same events."
        ),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    families = parser.add_subparsers(
        title="workloads", metavar="WORKLOAD", required=True, parser_class=_FamilyParser
    )
    for name, (description, _) in FAMILIES.items():
        families.add_parser(
            name, help=description, description=description[0].upper() + description[1:] + "."
        )


class _FamilyParser(argparse.ArgumentParser):
    """Options of a family; the family is imported when its options are needed."""

    _is_complete = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Only of the family that was chosen."""
        if not self._is_complete:
            from anabranch_bench.workloads.registry import find_family

            self._is_complete = True
            family = find_family(self.prog.split()[-1])
            _add_common_options(self, family)
            family.add_options(self)
            self.set_defaults(run=lambda args: run_workload(args, family))
        return super().parse_known_args(args, namespace)


def _add_common_options(parser: argparse.ArgumentParser, family: Family) -> None:
    add = parser.add_argument_group("run").add_argument
    rate = "see below" if family.rate is None else f"{family.rate:,}"
    add("--rate", type=positive, default=family.rate, help=f"rows a second ({rate})")
    add("--duration", type=seconds, default=30.0, metavar="TIME", help="of the load (30s)")
    add("--workers", type=int, default=2, metavar="N", help="at the start (2)")
    add(
        "--rescale",
        action="append",
        default=[],
        metavar="N@TIME",
        help="to N workers, TIME after the load began, as in 3@20s; may be repeated",
    )
    add("--strategy", default="live", help="how key groups move (live)")
    add("--verify", action="store_true", help="compare the results with a plain computation")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--cores", type=int, default=2, metavar="N", help="tasks that Spark runs at a time (2)")


def run_workload(args: argparse.Namespace, family: Family) -> int:
    """Run it; the exit code says whether the results were right."""
    workload, settings = family.from_options(args), _settings(args)
    check_java()
    from anabranch.loadtest.session import spark_session
    from anabranch_bench.reports.report import run_document, write_json
    from anabranch_bench.results.run_result import INTERRUPTED
    from anabranch_bench.runs import loaded_run

    print(f"{workload.name}: {workload.description}.", flush=True)
    print(f"Starting Spark and a state service with {settings.workers} workers ...", flush=True)
    with spark_session(args.cores, "2g") as (spark, folder), stop_on_interrupt() as interrupts:
        run = loaded_run.WorkloadRun(
            spark, folder, workload, settings, Display(settings).show, lambda: bool(interrupts)
        )
        try:
            run.run()
        except KeyboardInterrupt:
            run.result.error = INTERRUPTED
            raise
        finally:
            show_summary(run.result, settings.verify)
            chosen = {name: getattr(settings, name) for name in ("duration", "workers", "strategy")}
            write_json(args.json, run_document(run.result, **chosen))
    if run.result.is_right is False:
        return EXIT_WRONG
    return EXIT_INTERRUPTED if run.result.is_interrupted else 0


def _settings(args: argparse.Namespace) -> RunSettings:
    """Everything that can be wrong is found here, before Spark starts."""
    from anabranch.errors import InvalidArgument
    from anabranch.migration.strategies import check
    from anabranch_bench.runs.loaded_run import RunSettings

    check(args.strategy, {})
    if args.cores < 1:
        raise InvalidArgument("--cores must be at least 1.")
    check_folders(args, "json")
    return RunSettings(
        rate=args.rate,
        duration=args.duration,
        workers=args.workers,
        rescales=tuple(map(parse_rescale, args.rescale)),
        strategy=args.strategy,
        verify=args.verify,
    )


def parse_rescale(text: str) -> Rescale:
    """`3@20s`: workers, and any time that `--duration` takes."""
    from anabranch.errors import InvalidArgument
    from anabranch_bench.runs.loaded_run import Rescale

    workers, _, at = text.partition("@")
    try:
        return Rescale(count(workers), seconds(at))
    except (ValueError, argparse.ArgumentTypeError):
        raise InvalidArgument(
            f"'{text}' is not a rescale. Write WORKERS@TIME, as in 3@20s or 3@1m: three workers, "
            "20 seconds or a minute after the load began."
        ) from None


@contextmanager
def stop_on_interrupt() -> Iterator[list[int]]:
    """Ctrl-C ends the load; what was sent is finished and counted. A second one ends at once.

    Spark's own handler would cancel the batch that runs.
    """
    found: list[int] = []

    before: Any = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: Any) -> None:
        if found:
            before(number, frame)
            raise KeyboardInterrupt
        found.append(number)
        print("\nStopping the load (Ctrl-C again to end at once) ...", flush=True)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


class Display:
    """A line a second."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._next = 0.0
        self._phase = ""
        self._waiting_at = -1
        self._left = -1

    def show(self, moment: Moment) -> None:
        """Print, if it is time or the phase is new."""
        now = time.monotonic()
        if moment.left is not None:
            self._catching_up(moment, moment.left, now)
            return
        if moment.phase == self._phase and (now < self._next or moment.rows == self._waiting_at):
            return
        if moment.phase == "load" and self._phase != "load":
            self._head()
        self._next, self._phase = now + 1, moment.phase
        done = "" if moment.progress is None else f"  {bar(moment.progress, BAR)}"
        if moment.phase != "load":
            self._waiting_at = moment.rows
            print(f"{moment.phase}, {moment.rows:,} rows{done}", flush=True)
            return
        self._waiting_at = -1
        latency = "-" if moment.latency is None else f"{moment.latency * 1000:,.0f} ms"
        shares = "  ".join(f"{name} {groups}" for name, groups in moment.groups().items())
        since = f"{max(0.0, moment.seconds):.1f} s"
        print(f"{since:>8} {moment.rows:>12,} {latency:>10}  {shares}{done}", flush=True)

    def _catching_up(self, moment: Moment, left: int, now: float) -> None:
        """When it has changed, and else from time to time: one batch may have all of it."""
        if moment.phase != self._phase:
            self._next, self._phase, self._left = 0.0, moment.phase, -1
        if left and (now >= self._next or left != self._left):
            self._next, self._left = now + STILL_SECONDS, left
            print(f"{moment.phase}, {left:,} rows left", flush=True)

    def _head(self) -> None:
        print(
            f"\nNow {self._settings.rate:,.0f} rows a second for {self._settings.duration:g} "
            "seconds, whatever happens.\n"
        )
        print(f"{'time':>8} {'rows done':>12} {'latency':>10}  key groups of each worker")


def show_summary(result: RunResult, is_verified: bool) -> None:
    """Rows, latency by phase, moves, what the oracle says."""
    from anabranch_bench.reports.report import phase_lines

    print(f"\n{'Interrupted. ' if result.is_interrupted else ''}{result.rows:,} rows in", end="")
    print(f", {result.output_rows:,} rows out." if is_verified else ".")
    print("", *phase_lines(result), sep="\n")
    for move in result.moves:
        print(f"\n{move.text}")
    print()
    if not result.verifications:
        print("Not verified." if is_verified else "Not verified: ask for --verify.")
    for verdict in result.verifications:
        print(verdict, file=sys.stdout if verdict.is_right else sys.stderr)
