"""A service whose workers are on namespaced hosts: what happens there, when, and what must hold."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster.leftovers import left_on, wait_for_nothing
from tests.cluster.record import RECORD

from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.namespaces import NamespacedHost, Network
from anabranch_bench.testbed.workload import NOTE_LETTERS

HOSTS = ("h1", "h2", "h3")
SMALL_DISK = "h3"
HOST_TIMEOUT = 10.0
AFTER_TIMEOUT = 10.0
"""Seconds after `host_timeout` within which batches go on, as issue 26 promises."""
FENCED_SECONDS = HOST_TIMEOUT + 5.0
"""After which no worker runs behind a cut: agents look once a second or so."""
WORKER, ZYGOTE = "anabranch worker", "anabranch.processes.zygote"
"""Parts of command lines."""
STEADY_BATCHES = 4
BATCHES_AFTER = 4
HANG_SECONDS = 60.0
"""Waited for longer than the limit, so that a slow query can be told from one that hangs."""
LATE_SECONDS = 30.0
"""Under some checkpoints, rows of a move come out so much later, at most."""
WORKERS = 3
QUERIES = ("totals", "chain")
LOOKS = "anabranch_bench.testbed.looks"
MOVE_BYTES_PER_SECOND = 200_000
"""A move from 3 to 5 workers takes about four seconds then."""


class Scene(ABC):
    """A driver with a service, hosts with workers, queries that run; a context manager."""

    lanes = 2

    def __init__(self, folder: Path, letters: int = NOTE_LETTERS, **options: Any) -> None:
        """Length of the note that each customer has, and options of the service."""
        self._letters = letters
        self.folder, self._options = folder, options
        self._is_late = options.get("checkpoint") in ("unaligned", "independent")
        self._started = time.time()
        self._closing = ExitStack()
        self.driver: Driver
        self.network: Network

    def __enter__(self) -> Scene:
        with ExitStack() as closing:
            self.network = closing.enter_context(
                Network(["driver", *HOSTS], self.folder, disk_bytes={SMALL_DISK: 96 << 20})
            )
            self.driver = closing.enter_context(self._start_driver(closing))
            self._start_service()
            self.say(f"service with {self.hosts_of_workers()}")
            for operator in QUERIES:
                self.driver.call("start_query", operator, letters=self._letters)
            for operator in QUERIES:
                self.driver.wait_for("batch", 180, query=operator, number=STEADY_BATCHES)
            self.say(f"{', '.join(QUERIES)} run")
            self._share_out()
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @abstractmethod
    def _start_driver(self, closing: ExitStack) -> Driver:
        """And whatever it needs."""

    @abstractmethod
    def _start_service(self, **more: Any) -> None:
        """With its hosts; more options."""

    @abstractmethod
    def start_again(self, host: NamespacedHost) -> None:
        """Start on a host whatever is not there any more."""

    # -- looks --

    @property
    def driver_host(self) -> NamespacedHost:
        """Where the coordinator is."""
        return self.network.hosts["driver"]

    def say(self, text: str) -> None:
        """Print it with the seconds since the scene began."""
        print(f"{time.time() - self._started:7.1f} s  {text}", flush=True)

    def status(self) -> dict[str, Any]:
        """As the service says."""
        found: dict[str, Any] = self.driver.call("service", "status")
        return found

    def hosts_of_workers(self) -> dict[str, str]:
        """Where each worker is."""
        hosts = self.status()["hosts"].items()
        return {worker: host for host, told in hosts for worker in told["workers"]}

    def restarts(self) -> dict[str, int]:
        """Of each worker."""
        return {name: told["restarts"] for name, told in self.status()["workers"].items()}

    def hosts_there(self) -> set[str]:
        """Hosts that count."""
        return {host for host, told in self.status()["hosts"].items() if "lost" not in told}

    def worker_processes(self, host: str) -> list[int]:
        """Of all incarnations."""
        return self.network.hosts[host].find(WORKER)

    def key_groups_of(self, host: str) -> int:
        """What the workers of a host own."""
        status = self.status()
        workers = status["workers"]
        return sum(workers[name]["key_groups"] for name in status["hosts"][host]["workers"])

    def check_is_used(self, host: str) -> None:
        """It owns key groups, and lanes run on it: else its loss would show nothing."""
        owned = self.key_groups_of(host)
        assert owned, f"{host} owns no key groups."
        self.say(f"{host} owns {owned} key groups")

    # -- a move under way --

    def begin_move(self, strategy: str) -> int:
        """From 3 to 5 workers, slowly; a part has been done."""
        move: int = self.driver.call(
            "move", "rescale", 5, strategy=strategy, bytes_per_second=MOVE_BYTES_PER_SECOND
        )
        self.wait_until("the move is under way", lambda: self._progress_of(move) > 0, 30)
        return move

    def _progress_of(self, move: int) -> float:
        progress: float = self.driver.call(f"{LOOKS}:move_state", move)["progress"]
        return progress

    def cut_during(self, move: int, host: str) -> float:
        """Cut a host off while it moves; when that was."""
        self.network.cut(host)
        cut = time.time()
        state = self.driver.call(f"{LOOKS}:move_state", move)
        self.say(f"{host} is cut off, {state['progress']:.0%} of 3 -> 5 workers are done")
        RECORD.note(progress_at_the_cut=state["progress"])
        assert not state["is_over"], "The move was over before the cut."
        return cut

    # -- what must hold --

    def batches_go_on(self, since: float, limit: float) -> float:
        """Some batches of each query end, with no longer time between two; the longest there was.

        Some: the first one may have been under way, the next ones need what has happened since.
        """
        try:
            for operator in QUERIES:
                at = since
                for _ in range(BATCHES_AFTER):
                    left = since + limit + HANG_SECONDS - time.time()
                    at = self.driver.wait_for("batch", left, at + 0.001, query=operator)["at"]
        except TimeoutError:
            self.driver.dump()
            self.keep_logs()
            raise
        finally:
            self.say(f"batches, in seconds since then: {self._batches_after(since)}")
        gap = max(self.driver.longest_gap(since, operator) for operator in QUERIES)
        self.say(f"longest gap {gap:.1f} s")
        RECORD.add("gaps", {"seconds": round(gap, 2), "limit": limit})
        if gap > limit:
            self.keep_logs()
        assert gap <= limit, f"{gap:.1f} s without a batch instead of at most {limit:.0f}."
        return gap

    def keep_logs(self) -> None:
        """Put beside the driver's log what would be gone with the disks of the hosts."""
        for name in HOSTS:
            for log in self.network.hosts[name].seen_disk().glob("work/*/*/stderr"):
                kept = self.folder / f"{name}-executor-{log.parent.name}.log"
                kept.write_bytes(log.read_bytes())

    def _batches_after(self, since: float) -> dict[str, list[float]]:
        found: defaultdict[str, list[float]] = defaultdict(list)
        for told in list(self.driver.events):
            if told["event"] == "batch" and told["at"] > since:
                found[told["query"]].append(round(told["at"] - since, 1))
        return {operator: times[:12] for operator, times in found.items()}

    def wait_until(self, what: str, is_so: Callable[[], bool], limit: float) -> float:
        """Seconds until it was so."""
        started = time.time()
        while not is_so():
            if time.time() - started > limit:
                raise TimeoutError(f"{what}: not within {limit:.0f} s.{self.driver.tail()}")
            time.sleep(0.1)
        self.say(f"{what}: after {time.time() - started:.1f} s")
        return time.time() - started

    def wait_until_lost(self, host: str) -> None:
        """The coordinator has given it up."""
        limit = HOST_TIMEOUT + AFTER_TIMEOUT
        self.wait_until(f"{host} is lost", lambda: host not in self.hosts_there(), limit)

    def wait_fenced(self, host: str) -> None:
        """No worker of a host that is cut off lives on."""
        fenced = f"no worker lives on {host}, behind its cut"
        self.wait_until(fenced, lambda: not self.worker_processes(host), FENCED_SECONDS)

    def wait_for_nothing(self, agents_stay: bool = False) -> None:
        """Soon no process, port or folder is left on any host."""
        hosts = self.network.hosts.values()
        taken = wait_for_nothing(hosts, FENCED_SECONDS, agents_stay)
        self.say(f"nothing is left on any host: after {taken:.1f} s")
        RECORD.note(nothing_left_after=round(taken, 1))

    def go_on_from(self, savepoint: dict[str, Any]) -> None:
        """All ends; another service at another location goes on from a savepoint."""
        self.driver.call(f"{LOOKS}:end_for", savepoint)
        self._start_service(folder="state-restored", restore=savepoint["path"])
        self.driver.call(f"{LOOKS}:restart_queries")
        restored = time.time()
        for operator in QUERIES:
            last = savepoint["epochs"][operator]
            self.driver.wait_for("batch", 120, restored, query=operator, number=last + 3)
        self.say(f"restored from {savepoint['epochs']}: {self.hosts_of_workers()}")

    def check_something_is_there(self) -> None:
        """Else it would prove nothing that nothing is left."""
        for name in HOSTS:
            left = " ".join(left_on(self.network.hosts[name]))
            assert all(word in left for word in (WORKER, "port", "folder")), f"{name}: {left}"

    def check(self) -> None:
        """No query has failed, and everything equals the sequential computation."""
        failed = [e for e in list(self.driver.events) if e["event"] == "ended"]
        assert not failed, f"{failed}{self.driver.tail()}"
        verdict = self.driver.call("check", self._is_late, timeout=180)
        limit = time.monotonic() + LATE_SECONDS
        while self._is_late and verdict["wrong"] and time.monotonic() < limit:
            verdict = self.driver.call("check", True, timeout=180)
        self.say(f"checked: {verdict}")
        RECORD.note(checked=verdict)
        assert verdict["wrong"] == []
        assert verdict["batches"]

    def restart_what_ended(self) -> None:
        """On their checkpoints, as a user would do."""
        for told in [e for e in list(self.driver.events) if e["event"] == "ended"]:
            self.driver.events.remove(told)
            self.driver.call("restart_query", told["query"])

    def is_sound(self) -> bool:
        """Whether another test can go on with it."""
        return not any(e["event"] == "ended" for e in list(self.driver.events))

    def restore(self) -> None:
        """As in the beginning: all hosts are there and have a worker each."""
        for name, host in self.network.hosts.items():
            self.network.heal(name)
            host.go_on()
        for name in HOSTS:
            self.start_again(self.network.hosts[name])
        self._share_out()

    def _share_out(self) -> None:
        """A worker for each host: the one whose agent came first may have them all."""
        everyone = set(HOSTS)
        self.wait_until("all hosts are there", lambda: self.hosts_there() == everyone, 120)
        self.rescale(WORKERS, strategy="pause")
        if set(self.hosts_of_workers().values()) != everyone:
            self.spread()

    def rescale(self, workers: int, **options: Any) -> dict[str, Any]:
        """Wait for it; its report."""
        return self.report(self.driver.call("move", "rescale", workers, **options))

    def spread(self) -> None:
        """One worker on each host: fewer first, then as many as there are hosts."""
        self.rescale(1, strategy="pause")
        self.rescale(WORKERS, strategy="pause")

    def report(self, number: int, limit: float = 90.0) -> dict[str, Any]:
        """Of a move that has to end in time."""
        found: dict[str, Any] = self.driver.call("report", number, limit, timeout=limit + 30)
        self.say(f"{found['strategy']}: {found['outcome']}, {found['seconds']:.1f} s")
        names = ("strategy", "outcome", "seconds", "pause_seconds", "groups", "bytes")
        RECORD.add("moves", {name: found[name] for name in names})
        assert found["is_over"], found
        return found
