"""`anabranch bench cluster`: moves over slow links, and the loss of a host, on a Spark cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import Latency, Timeline, TimeWindow
from anabranch.loadtest.loaded_query import Folders, Say
from anabranch.protocol.move_parts import ACROSS_HOSTS
from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.namespaces import Network
from anabranch_bench.testbed.standalone import EXECUTOR, StandaloneCluster

HOSTS = ("h1", "h2", "h3", "h4")
KEY_COUNTS, SHOW = "anabranch_bench.testbed.key_counts", "anabranch_bench.testbed.show"
LOOK_SECONDS = 0.25
MOVE_SECONDS_MAX = 180.0
GO_ON_SECONDS_MAX = 300.0
BATCHES_AFTER = 4
SPARK, ANABRANCH = "spark", "anabranch"
LOSSES = ("executor killed", "host cut off")


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


@dataclass
class ClusterMove:
    """A move from 2 to 4 workers on four hosts, in the middle of a load."""

    link: str
    strategy: str
    repeat: int
    window: TimeWindow
    settle: float
    """When the steady time before it began, in seconds since the load began."""
    end: float
    bytes_across: int
    """That left the hosts' network cards during the move, of Spark too."""
    report: dict[str, Any]
    timeline: Timeline
    load: float = 0.0
    """Of the machine, in the minute before the end."""

    @property
    def is_right(self) -> bool:
        """Whether it has been done; keys are compared when all moves are over."""
        return bool(self.report["outcome"] == "done")

    @property
    def state_across(self) -> int:
        """Bytes of state that went from host to host."""
        across: int = self.report["counters"].get(ACROSS_HOSTS, 0)
        return across

    @property
    def before(self) -> Latency:
        """In the steady time."""
        return self.timeline.before(TimeWindow(self.settle, self.window.start))

    @property
    def during(self) -> Latency:
        """While it ran."""
        return self.timeline.during(self.window)

    def to_json(self) -> dict[str, Any]:
        """For machines; with all batches of its time."""
        return {"kind": "move", **asdict(self), "timeline": self._part().to_json()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ClusterMove:
        """What `to_json` was told of."""
        given = {name: value for name, value in told.items() if name != "kind"}
        given["window"] = TimeWindow(**told["window"])
        given["timeline"] = Timeline.from_json(told["timeline"])
        return cls(**given)

    def _part(self) -> Timeline:
        began = self.timeline.load.started
        batches = self.timeline.batches
        found = [b for b in batches if self.settle <= b.committed - began <= self.end]
        return Timeline(self.timeline.load, found)

    def line(self) -> str:
        """For people."""
        before, during = self.before, self.during
        return (
            f"{self.link:>8}  {self.strategy:<14} {self.report['outcome']}, "
            f"{self.window.seconds:.1f} s, excess of the peak {during.peak - before.peak:.2f} s, "
            f"of the mean {during.mean - before.mean:.2f} s, {self.state_across / 1e6:,.1f} MB of "
            f"state across hosts ({self.report['bytes'] / 1e6:,.1f} MB moved, "
            f"{self.bytes_across / 1e6:,.0f} MB through network cards), load {self.load:.1f}"
        )


@dataclass
class HostLoss:
    """A host's loss: the longest time without a batch."""

    side: str
    what: str
    repeat: int
    gap: float
    wrong: list[str] = field(default_factory=list)
    load: float = 0.0
    """Of the machine, in the minute before the end."""

    @property
    def is_right(self) -> bool:
        """Whether all outputs and all state are right."""
        return not self.wrong

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {"kind": "loss", **asdict(self)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> HostLoss:
        """What `to_json` was told of."""
        return cls(**{name: value for name, value in told.items() if name != "kind"})

    def line(self) -> str:
        """For people."""
        right = "RESULTS WRONG" if self.wrong else "results equal"
        after = f"goes on after {self.gap:.1f} s"
        return f"{self.what:<16} {self.side:<10} {after} ({right}), load {self.load:.1f}"


class ClusterBench:
    """One cluster at a time."""

    def __init__(self, folder: Path, settings: ClusterSettings, say: Say) -> None:
        self._folders, self._settings, self._say = Folders(folder), settings, say

    def run(self) -> Iterator[ClusterMove | HostLoss]:
        """The results, as they come."""
        for link in self._settings.links:
            yield from self._moves(link)
        for what in self._settings.losses:
            for side in (ANABRANCH, SPARK):
                for repeat in range(self._settings.repeat):
                    yield self._loss(what, side, repeat)

    def _moves(self, link: str) -> Iterator[ClusterMove]:
        s = self._settings
        with ExitStack() as closing:
            network, driver, _ = self._cluster(closing, HOSTS)
            for host in network.hosts.values():
                host.limit_link(link)
            self._say(f"{link}: loading {s.keys:,} keys")
            driver.call("start_service", workers=2, host=network.hosts["driver"].address)
            driver.call(f"{KEY_COUNTS}:begin", s.keys, s.payload_bytes, timeout=900)
            began = driver.call(f"{SHOW}:load", s.rate)
            for repeat in range(s.repeat):
                for strategy in s.strategies:
                    self._say(f"{link}: {strategy}, run {repeat + 1}")
                    yield self._move(network, driver, began, link, strategy, repeat)
                    self._go_back(driver)
            wrong = driver.call(f"{KEY_COUNTS}:wrong_keys", s.keys, timeout=600)
            if wrong:
                raise AnabranchError(f"{link}: {wrong} keys differ from a batch query.")

    def _move(
        self,
        network: Network,
        driver: Driver,
        began: float,
        link: str,
        strategy: str,
        repeat: int,
    ) -> ClusterMove:
        settle = time.time() - began
        time.sleep(self._settings.seconds)
        sent = _bytes_sent(network)
        start = time.time() - began
        number = driver.call("move", "rescale", 4, strategy=strategy)
        report = driver.call("report", number, MOVE_SECONDS_MAX, timeout=MOVE_SECONDS_MAX + 60)
        end, across = time.time() - began, _bytes_sent(network) - sent
        time.sleep(self._settings.seconds)
        timeline = Timeline.from_json(driver.call(f"{KEY_COUNTS}:timeline"))
        last = time.time() - began
        window, load = TimeWindow(start, end), os.getloadavg()[0]
        return ClusterMove(
            link, strategy, repeat, window, settle, last, across, report, timeline, load
        )

    @staticmethod
    def _go_back(driver: Driver) -> None:
        """To 2 workers, from which the next move begins."""
        back = driver.call("move", "rescale", 2, strategy="live")
        report = driver.call("report", back, MOVE_SECONDS_MAX, timeout=MOVE_SECONDS_MAX + 60)
        if report["outcome"] != "done" or len(report["workers_after"]) != 2:
            raise AnabranchError(
                f"The way back to 2 workers is not done: {report['outcome']}. The next move would "
                "begin elsewhere: run the other strategies again with --strategies."
            )

    def _loss(self, what: str, side: str, repeat: int) -> HostLoss:
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
            gap = driver.longest_gap(start)
            wrong = driver.call("check")["wrong"]
            return HostLoss(side, what, repeat, gap, wrong, os.getloadavg()[0])

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


def _bytes_sent(network: Network) -> int:
    return sum(host.bytes_sent() for host in network.hosts.values())
