"""`anabranch bench cluster`: moves over slow links, and the loss of a host, on a Spark cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import Timeline, TimeWindow
from anabranch.loadtest.loaded_query import Folders, Say
from anabranch_bench.probes.machine import CoreTimes
from anabranch_bench.results.cases import CONTROL, Case
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import Controls, MeasuredMove, RunResult
from anabranch_bench.results.verdicts import SideBySide
from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.namespaces import Network
from anabranch_bench.testbed.standalone import EXECUTOR, StandaloneCluster
from anabranch_bench.workloads.verify import Verification

HOSTS = ("h1", "h2", "h3", "h4")
KEY_COUNTS, SHOW = "anabranch_bench.testbed.checked_counts", "anabranch_bench.testbed.show"
LOOK_SECONDS = 0.25
MOVE_SECONDS_MAX = 180.0
GO_ON_SECONDS_MAX = 300.0
BATCHES_AFTER = 4
SPARK, ANABRANCH = "spark", "anabranch"
LOSSES = ("executor killed", "host cut off")
DONE = "done"
NO_LONGER = "no longer than with Spark's own operator"
BYTES_ACROSS = "bytes_across_hosts"
"""In a move's report: what left the hosts' network cards meanwhile, of Spark too."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Sizes of a run."""

    links: tuple[str, ...] = ("1gbit", "100mbit")
    strategies: tuple[str, ...] = ("live",)
    keys: int = 100_000
    payload_bytes: int = 1_000
    rate: float = 4_000.0
    seconds: float = 8.0
    """Of steady load before each move and after it."""
    repeat: int = 1
    losses: tuple[str, ...] = LOSSES


class ClusterBench:
    """One cluster at a time."""

    def __init__(self, folder: Path, settings: ClusterSettings, say: Say) -> None:
        self._folders, self._settings, self._say = Folders(folder), settings, say

    def run(self) -> Iterator[RunResult | SideBySide]:
        """The results, as they come: moves and the times between them, then losses."""
        for link in self._settings.links:
            yield from self._moves(link)
        for what in self._settings.losses:
            yield self._losses(what)

    def _moves(self, link: str) -> Iterator[RunResult]:
        s = self._settings
        with ExitStack() as closing:
            network, driver, _ = self._cluster(closing, HOSTS)
            for host in network.hosts.values():
                host.limit_link(link)
            self._say(f"{link}: loading {s.keys:,} keys")
            driver.call("start_service", workers=2, host=network.hosts["driver"].address)
            driver.call(f"{KEY_COUNTS}:begin", s.keys, s.payload_bytes, timeout=900)
            driver.call(f"{SHOW}:load", s.rate)
            turns = ClusterTurns(network, driver, s, link, self._say)
            found: list[RunResult] = []
            try:
                found.extend(turns.take())
            except AnabranchError:
                yield from turns.done
                raise
            wrong = driver.call(f"{KEY_COUNTS}:wrong_keys", s.keys, timeout=600)
        told = (f"{wrong:,} keys differ from a batch query",) if wrong else ()
        for run in found:
            run.verifications = [Verification("counts", s.keys, s.keys, told, wrong)]
            yield run

    def _losses(self, what: str) -> SideBySide:
        gaps: dict[str, list[float]] = {ANABRANCH: [], SPARK: []}
        wrong: list[str] = []
        for side, found in gaps.items():
            for repeat in range(self._settings.repeat):
                gap, differences = self._loss(what, side, repeat)
                found.append(gap)
                wrong += [f"{side}: {difference}" for difference in differences]
        ours, spark = (tuple(gaps[side]) for side in (ANABRANCH, SPARK))
        result = SideBySide.of_seconds(what, "seconds without a batch", ours, spark, NO_LONGER)
        note = f"RESULTS WRONG: {'; '.join(wrong)}" if wrong else "results equal"
        return replace(result, passed=result.passed and not wrong, note=note)

    def _loss(self, what: str, side: str, repeat: int) -> tuple[float, list[str]]:
        """The longest time without a batch, and what is wrong in the end."""
        self._say(f"{what}: {side}, run {repeat + 1}")
        with ExitStack() as closing:
            network, driver, _ = self._cluster(closing, HOSTS[:3])
            operator = "totals" if side == ANABRANCH else SPARK
            if side == ANABRANCH:
                address = network.hosts["driver"].address
                driver.call("start_service", workers=3, lanes=4, host=address)
            driver.call("start_query", operator)
            driver.wait_for("batch", 180, number=2 * BATCHES_AFTER)
            start = time.time()
            if what == LOSSES[0]:
                network.hosts["h1"].kill(EXECUTOR)
            else:
                network.cut("h1")
            at = start
            for _ in range(BATCHES_AFTER):
                at = driver.wait_for("batch", GO_ON_SECONDS_MAX, at + 0.001)["at"]
            return driver.longest_gap(start), driver.call("check")["wrong"]

    def _cluster(
        self, closing: ExitStack, hosts: tuple[str, ...]
    ) -> tuple[Network, Driver, StandaloneCluster]:
        folder = self._folders.fresh("cluster")
        network = closing.enter_context(Network(["driver", *hosts], folder))
        workers = [network.hosts[name] for name in hosts]
        cluster = StandaloneCluster(network.hosts["driver"], workers, folder)
        closing.enter_context(cluster)
        settings = {"spark.task.cpus": "0.99"}  # so that agents take no slot of lanes
        driver = Driver(network.hosts["driver"], cluster.url, folder / "app", settings)
        return network, closing.enter_context(driver), cluster


@dataclass
class ClusterTurns:
    """Moves from 2 to 4 workers in one query, each between two times without one."""

    network: Network
    driver: Driver
    settings: ClusterSettings
    link: str
    say: Say
    move_seconds: float = 0.0
    """How long the last move took."""
    done: list[RunResult] = field(default_factory=list)

    def take(self) -> list[RunResult]:
        """Control, move, control, move, ..., control; `done` has them also after an error."""
        self.done.append(self._control(0))
        for repeat in range(self.settings.repeat):
            for strategy in self.settings.strategies:
                self.say(f"{self.link}: {strategy}, run {repeat + 1}")
                turn = len(self.done) // 2
                self.done.append(self._move(strategy, turn))
                self._go_back()
                self.done.append(self._control(turn + 1))
        return self.done

    def _control(self, turn: int) -> RunResult:
        return self._turn(self._run(CONTROL, turn), lambda: time.sleep(self.move_seconds))

    def _move(self, strategy: str, turn: int) -> RunResult:
        run = self._run(strategy, turn)

        def move() -> None:
            sent, start = _bytes_sent(self.network), time.time()
            report = self._moved(4, strategy)
            across = _bytes_sent(self.network) - sent
            self.move_seconds = time.time() - start
            window = TimeWindow(start, start + self.move_seconds)
            run.moves = [MeasuredMove(window, {**report, BYTES_ACROSS: across})]

        self._turn(run, move)
        if run.report["outcome"] != DONE:
            run.error = f"The move is not done: {run.report['outcome']}"
        return run

    def _go_back(self) -> None:
        """To 2 workers, from which the next move begins."""
        report = self._moved(2, "live")
        if report["outcome"] != DONE or len(report["workers_after"]) != 2:
            raise AnabranchError(
                f"The way back to 2 workers is not done: {report['outcome']}. The next move would "
                "begin elsewhere: run the other strategies again with --strategies."
            )

    def _moved(self, workers: int, strategy: str) -> dict[str, Any]:
        number = self.driver.call("move", "rescale", workers, strategy=strategy)
        limit = MOVE_SECONDS_MAX + 60
        report: dict[str, Any] = self.driver.call("report", number, MOVE_SECONDS_MAX, timeout=limit)
        return report

    def _turn(self, run: RunResult, act: Callable[[], None]) -> RunResult:
        """A part of the load, as if the load had begun with it: steady, then this, then steady."""
        start, cores = time.time(), CoreTimes()
        time.sleep(self.settings.seconds)
        act()
        time.sleep(self.settings.seconds)
        whole = Timeline.from_json(self.driver.call(f"{KEY_COUNTS}:timeline"))
        run.timeline, run.cores = Timeline(whole.load.later(start), whole.batches), cores.since()
        run.settle = self.settings.seconds / 4
        run.moves = [
            replace(m, window=TimeWindow(m.window.start - start, m.window.end - start))
            for m in run.moves
        ]
        return run

    def _run(self, label: str, turn: int) -> RunResult:
        s = self.settings
        load = RunLoad.key_count(s.rate, s.keys, s.payload_bytes)
        return RunResult(load, Case.parse(label), turn, self.link, Controls.BESIDE)


def _bytes_sent(network: Network) -> int:
    return sum(host.bytes_sent() for host in network.hosts.values())
