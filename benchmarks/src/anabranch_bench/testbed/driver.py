"""The test's end of a driver program on a host."""

from __future__ import annotations

import itertools
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from anabranch_bench.testbed.hosts import Host

START_SECONDS = 120.0
END_SECONDS = 60.0
PROGRAM = "anabranch_bench.testbed.driver_program"
JAVA_DRIVER = "SparkSubmit"
WORKLOAD = "anabranch_bench.testbed.workload"


class DriverError(RuntimeError):
    """What a function in the driver raised."""


class Driver:
    """A context manager: a Spark driver on a host; its orders, and the events that it tells."""

    def __init__(
        self,
        host: Host,
        url: str,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.host, self.folder = host, folder
        folder.mkdir(exist_ok=True)
        self.log = folder / "driver.log"
        self.events: list[dict[str, Any]] = []
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        words = [sys.executable, "-m", PROGRAM, url, host.address, str(folder)]
        words.append(json.dumps(dict(settings or {})))
        more = {"PYSPARK_PYTHON": sys.executable, **(environment or {})}
        self.process: subprocess.Popen[str] = host.start(words, self.log, more, talks=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        self.wait_for("ready", START_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def call(self, function: str, *args: Any, timeout: float = 120.0, **kwargs: Any) -> Any:
        """What a function of the workload (or `module:name`) returns in the driver."""
        return self.send(function, *args, **kwargs)(timeout)

    def send(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Order it; what this returns waits for the answer, for so many seconds."""
        number = next(self._numbers)
        answer = self._answers[number] = queue.Queue()
        name = function if ":" in function else f"{WORKLOAD}:{function}"
        order = {"id": number, "function": name, "args": args, "kwargs": kwargs}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")

        def wait(timeout: float) -> Any:
            try:
                told = answer.get(timeout=timeout)
            except queue.Empty:
                raise TimeoutError(
                    f"{function}: no answer in {timeout:.0f} s.{self.tail()}"
                ) from None
            if "error" in told:
                raise DriverError(told["error"] + "\n" + told["trace"])
            return told["result"]

        return wait

    def wait_for(self, event: str, timeout: float, since: float = 0.0, **facts: Any) -> Any:
        """The first such event after a time, with these facts."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            for told in list(self.events):
                if told["event"] == event and told["at"] >= since and facts.items() <= told.items():
                    return told
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.05)
        raise TimeoutError(f"No event {event} {facts} in {timeout:.0f} s.{self.tail()}")

    def longest_gap(self, since: float, query: str | None = None) -> float:
        """The longest time without a batch of the queries, or of one, from then until now."""
        batches = [e for e in list(self.events) if e["event"] == "batch"]
        times = [e["at"] for e in batches if query in (None, e["query"]) and e["at"] > since]
        ends: list[float] = [since, *times, time.time()]
        return max(b - a for a, b in itertools.pairwise(ends))

    def dump(self) -> None:
        """Write to its log what its threads are doing."""
        self.host.signal(signal.SIGUSR1, "-m " + PROGRAM)
        time.sleep(1)

    def tail(self) -> str:
        """The end of its log, for messages."""
        return "\nThe driver's log ends:\n" + self.log.read_text(errors="replace")[-3000:]

    def end(self) -> int:
        """In order, as when the program ends; its exit code. -9: it did not end in time."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(10)
        return self.process.returncode

    def kill(self) -> None:
        """kill -9: Python and its JVM, as when the driver's machine loses them."""
        self.host.kill(PROGRAM)
        self.host.kill(JAVA_DRIVER)
        self.process.wait(10)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if "event" in told:
                self.events.append(told)
            elif answer := self._answers.get(told["id"]):
                answer.put(told)
        gone = {"error": "The driver has ended.", "trace": self.tail()}
        for answer in list(self._answers.values()):
            answer.put(gone)
