"""`anabranch demo-cluster`: a Spark cluster here, whose hosts change while a query runs."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import check_folders, count, positive
from anabranch.cli.demo import MADE, DemoMove, DemoRun, show, verdict
from anabranch.cli.java import check_java
from anabranch.errors import AnabranchError, InvalidArgument

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.testbed.driver import Driver
    from anabranch_bench.testbed.namespaces import Network

HOSTS = ("h1", "h2", "h3")
DRAINED, CUT = "h1", "h3"
RATE = 5_000
LOOK_SECONDS = 0.25
MOVE_SECONDS = 120.0
CUT_SECONDS = 90.0
SETTLE_SECONDS = 2.0
"""After a cut, batches may still end that need nothing of the host."""
SHOW = "anabranch_bench.testbed.show"

NEEDED = """\
{reason}
The demo makes three hosts out of namespaces of Linux. It needs root, for instance `sudo make
demo-cluster`, or a container with --privileged and /dev/net/tun; `ip` (package iproute2) and
`unshare`, `nsenter` (package util-linux). `anabranch demo` shows a rescaling without all that."""


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "demo-cluster",
        help="a cluster of three hosts: rescaled, one host drained, one cut off, checked",
        description=(
            "Starts a standalone Spark cluster of three hosts on this machine, each with a network "
            "of its own. While a query counts orders there, the state service goes from 2 to 4 "
            "workers over all hosts, one host is drained, and one is cut off and stays so. Draws "
            "the latency of rows over time; compares the result with a sequential computation."
        ),
    )
    parser.add_argument(
        "--seconds", type=positive, default=8, help="steady load before and after changes (8)"
    )
    parser.add_argument("--rate", type=count, default=RATE, help=f"rows a second ({RATE:,})")
    parser.add_argument("--strategy", default="live", help="how key groups move (live)")
    parser.add_argument(
        "--plot", type=Path, default=Path("anabranch-demo-cluster.png"), help="where it draws"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every batch there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it; the exit code says whether the results were right."""
    from anabranch.migration.strategies import check
    from anabranch_bench.testbed.namespaces import why_not

    check(args.strategy, {})
    check_folders(args, "plot", "json")
    check_java()
    if reason := why_not():
        raise InvalidArgument(NEEDED.format(reason=reason))
    made, load_average = datetime.now(timezone.utc).strftime(MADE), os.getloadavg()[0]
    with cluster() as (network, driver):
        play = Play(network, driver, args)
        play.everything()
        found = driver.call(f"{SHOW}:finish", timeout=300)
    from anabranch.loadtest.latency import Timeline

    timeline = Timeline.from_json(found["timeline"])
    demo = DemoRun(made, os.cpu_count(), load_average, timeline, play.changes)
    if args.json:
        args.json.write_text(json.dumps(demo.to_json()) + "\n", encoding="utf-8")
    show(demo, args.plot, args.json)
    return verdict(found["rows"], found["customers"], found["wrong"])


@contextmanager
def cluster() -> Iterator[tuple[Network, Driver]]:
    """Hosts, Spark's daemons and a driver; all of it is gone afterwards."""
    from anabranch.state.scratch import Scratch
    from anabranch_bench.testbed.driver import Driver
    from anabranch_bench.testbed.namespaces import Network
    from anabranch_bench.testbed.standalone import StandaloneCluster

    with ExitStack() as closing:
        scratch = Scratch()
        closing.callback(scratch.close)
        print(f"Starting a Spark cluster of {len(HOSTS)} hosts ...", flush=True)
        network = closing.enter_context(Network(["driver", *HOSTS], scratch.path))
        hosts = [network.hosts[name] for name in HOSTS]
        spark = StandaloneCluster(network.hosts["driver"], hosts, scratch.path)
        closing.enter_context(spark)
        settings = {"spark.task.cpus": "0.99"}  # so that agents take no slot of lanes
        driver = Driver(network.hosts["driver"], spark.url, scratch.path / "app", settings)
        yield network, closing.enter_context(driver)


class Play:
    """What happens on the stage, and a line a second about it."""

    def __init__(self, network: Network, driver: Driver, args: argparse.Namespace) -> None:
        self._network, self._driver, self._args = network, driver, args
        self._load_began = self._printed = 0.0
        self._cut_off = ""
        self.changes: list[DemoMove] = []

    def everything(self) -> None:
        """From two workers to a host that is cut off."""
        print("Starting a state service with 2 workers ...", flush=True)
        self._driver.call("start_service", workers=2, host=self._network.hosts["driver"].address)
        done = self._driver.call(f"{SHOW}:begin", timeout=300)
        print(f"Warmed up with {done['rows']:,} orders of {done['customers']:,} customers.")
        rate = self._args.rate
        self._load_began = self._driver.call(f"{SHOW}:load", rate)
        print(
            f"Now {rate:,} orders a second, whatever happens. Latency counts from the time at "
            "which a row should have been sent.\n"
        )
        print(f"{'time':>7} {'rows done':>11} {'latency':>9}  workers and key groups of each host")
        self._watch(self._args.seconds)
        self._move("2 -> 4 workers", "rescale", 4)
        self._move(f"{DRAINED} drained", "drain", host=DRAINED)
        self._cut()

    def _move(self, name: str, method: str, *what: Any, **how: Any) -> None:
        strategy = self._args.strategy
        shown = [*(repr(w) for w in what), *(f"{k}={v!r}" for k, v in how.items())]
        self._say(f"service.{method}({', '.join(shown)}, strategy={strategy!r})")
        start = time.time() - self._load_began
        number = self._driver.call("move", method, *what, strategy=strategy, **how)
        limit = time.monotonic() + MOVE_SECONDS
        while self._driver.call(f"{SHOW}:progress", number, LOOK_SECONDS) is not None:
            self._line()
            if time.monotonic() > limit:
                raise AnabranchError(f"{name}: not within {MOVE_SECONDS:.0f} s. Lower --rate.")
        end = time.time() - self._load_began
        words = self._driver.call(f"{SHOW}:words", number)
        self.changes.append(DemoMove(name, start, end, words))
        self._watch(self._args.seconds)

    def _cut(self) -> None:
        """Until the host is lost and batches go on."""
        self._say(f"The cable of {CUT} is cut, and nobody mends it.")
        self._cut_off, cut = CUT, time.time()
        self._network.cut(CUT)
        while not self._goes_on_after(cut):
            self._watch(LOOK_SECONDS)
            if time.time() > cut + CUT_SECONDS:
                raise AnabranchError(f"The query has not gone on in {CUT_SECONDS:.0f} s.")
        start, end = cut - self._load_began, time.time() - self._load_began
        gap = self._driver.call(f"{SHOW}:longest_gap", cut)
        words = f"{CUT} cut off: batches went on without it; {gap:.1f} s between two of them"
        self.changes.append(DemoMove(f"{CUT} cut off", start, end, words))
        self._watch(self._args.seconds)

    def _goes_on_after(self, cut: float) -> bool:
        told = self._look()
        is_lost = CUT not in told["hosts"] or told["hosts"][CUT]["lost"] is not None
        return is_lost and told["committed"] > cut + SETTLE_SECONDS

    def _watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            self._line()

    def _look(self) -> dict[str, Any]:
        told: dict[str, Any] = self._driver.call(f"{SHOW}:look")
        return told

    def _line(self) -> None:
        """Print, once a second."""
        if time.monotonic() < self._printed + 1:
            return
        self._printed = time.monotonic()
        told = self._look()
        latency = "-" if told["latency"] is None else f"{told['latency'] * 1000:,.0f} ms"
        shown = []
        for name in HOSTS:
            host = told["hosts"].get(name, {"workers": [], "lost": None})
            workers = " ".join(f"{w} {told['groups'].get(w, 0)}" for w in host["workers"]) or "-"
            cut = " (cut off)" if name == self._cut_off else ""
            shown.append(f"{name}{cut}: {workers}")
        seconds = f"{told['at']:.1f} s"
        line = f"{seconds:>7} {told['rows']:>11,} {latency:>9}  {'   '.join(shown)}"
        print(line, flush=True)

    def _say(self, text: str) -> None:
        print(f"        {text}", flush=True)
