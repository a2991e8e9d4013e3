"""`anabranch bench recovery`: the first commit after a crash of everything.

Each start is a Spark driver of its own (`recovery_driver.py`). In the middle of a batch it is
killed with all that it has started (JVM, Python workers, state workers), and the next one goes on.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import Folders, Say
from anabranch_bench.experiments.recovery_driver import SAID, SPARK, DriverPlan
from anabranch_bench.probes.process_tree import Process, check_family, family, freeze, kill, send
from anabranch_bench.results.loads import keys_of
from anabranch_bench.results.verdicts import Verdict
from anabranch_bench.runs.batch_runs import last_batch

SIDES = ("hybrid", "local", SPARK)
"""Ours with what is needed first; ours with all of it first (Flink's way); Spark's own operator."""

FLATNESS_MAX = 1.3
SESSION_SECONDS_MAX = 180.0
FILL_SECONDS_MAX = 3600.0
COMMIT_SECONDS_MAX = 1800.0
WHOLE_SECONDS_MAX = 1900.0
CRASH_SECONDS_MAX = 120.0
POLL_SECONDS = 0.005
INTO_BATCH_SECONDS = (0.05, 0.1, 0.2)
"""How long a batch has run when everything is killed; not always the same."""


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Sizes of a run."""

    state_gb: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    sides: tuple[str, ...] = SIDES
    rows: int = 1_000
    """In the batch that is killed and runs again, of keys anywhere in the state."""
    payload_bytes: int = 1_000
    repeat: int = 3
    workers: int = 2
    settle_seconds: float = 15.0
    """Of small batches between loading the state and the first crash."""


@dataclass
class Recovery:
    """Restarts of one side with a state of one size."""

    side: str
    state_gb: float
    seconds: list[float] = field(default_factory=list)
    """From a Spark session that is ready in a new driver to the first commit."""
    load_seconds: list[float] = field(default_factory=list)
    """What of it the slowest transaction spent on reading state."""
    whole_seconds: list[float] = field(default_factory=list)
    """From the same moment until all state is in memory."""

    @property
    def median(self) -> float:
        """Of the first commits."""
        return statistics.median(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "side": self.side,
            "state_gb": self.state_gb,
            "first_commit_seconds": self.seconds,
            "counted_from": "the Spark session of a new driver is ready",
            "median_seconds": self.median,
            "load_seconds": self.load_seconds,
            "all_in_memory_seconds": self.whole_seconds,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Recovery:
        """What `to_json` was told of."""
        return cls(
            told["side"],
            told["state_gb"],
            told["first_commit_seconds"],
            told["load_seconds"],
            told["all_in_memory_seconds"],
        )

    def line(self) -> str:
        """For people."""
        spread = f"[{min(self.seconds):.2f} to {max(self.seconds):.2f}]"
        text = f"{self.state_gb:>5g} GB  {self.side:<7} first commit {self.median:.2f} s {spread}"
        if self.load_seconds:
            text += f", {statistics.median(self.load_seconds):.2f} s of it for state"
        if self.whole_seconds:
            text += f", all in memory after {statistics.median(self.whole_seconds):.1f} s"
        return text


def flatness(found: Sequence[Recovery]) -> float | None:
    """First commit with the largest state over that with the smallest, of the hybrid runs."""
    ours = sorted((r for r in found if r.side == "hybrid"), key=lambda r: r.state_gb)
    return ours[-1].median / ours[0].median if len(ours) > 1 else None


def judge_flatness(found: Sequence[Recovery]) -> Verdict:
    """Whether the time to the first commit grows with the state."""
    ratio, target = flatness(found), f"at most {FLATNESS_MAX} times between the ends"
    figures = "-" if ratio is None else f"{ratio:.2f} times"
    passed = None if ratio is None else ratio <= FLATNESS_MAX
    return Verdict("hybrid: first commit, largest to smallest state", target, figures, passed)


class MortalDriver:
    """A driver process, from its start to its death in the middle of a batch."""

    def __init__(self, plan: DriverPlan, scratch: Path, say: Say) -> None:
        self._checkpoint = Path(plan.folder) / "checkpoint"
        self._scratch = scratch
        self._say = say
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        scratch.mkdir(parents=True)
        self._errors = scratch / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "anabranch_bench.experiments.recovery_driver",
                    plan.encode(),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TMPDIR": str(scratch)},
                start_new_session=True,  # Ctrl-C is for us
            )
        self._started: set[Process] = set()
        """By it, as far as it was looked for: they end even if it has died by itself."""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> MortalDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait(self, event: str, seconds: float) -> dict[str, Any]:
        """The facts of the next event of a kind; an error if it does not come in time."""
        limit = time.monotonic() + seconds
        while True:
            try:
                said = self._events.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                raise AnabranchError(
                    f"A driver has not come to '{event}' after {seconds:.0f} s."
                ) from None
            if said is None:
                raise AnabranchError(f"A driver has failed before '{event}':\n{self._last_words()}")
            if said["event"] != "say":
                self._started |= family(self._process.pid)
            if said["event"] == event:
                return said
            if said["event"] == "say":
                self._say(said["text"])

    def crash(self, into_batch_seconds: float) -> None:
        """Kill everything while Spark has begun a batch and has not committed it."""
        limit = time.monotonic() + CRASH_SECONDS_MAX
        seen = last_batch(self._checkpoint, "offsets")
        while time.monotonic() < limit:
            time.sleep(POLL_SECONDS)
            begun = last_batch(self._checkpoint, "offsets")
            if begun == seen:
                continue
            seen = begun
            time.sleep(into_batch_seconds)
            frozen = freeze(self._process.pid)
            if is_in_batch(self._checkpoint):
                self.kill()
                return
            send(frozen, signal.SIGCONT)  # too late for this one
        raise AnabranchError(f"No batch has begun for {CRASH_SECONDS_MAX:.0f} s.")

    def kill(self) -> None:
        """End all processes; what they have left in their scratch folder is removed."""
        if self._process.poll() is None:
            kill(self._process.pid)
        send(self._started, signal.SIGKILL)
        self._process.wait()
        self._listener.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                if line.startswith(SAID.encode()):
                    self._events.put(json.loads(line[len(SAID) :]))
        except ValueError:
            pass  # closed
        self._events.put(None)

    def _last_words(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")[-2000:]


def is_in_batch(checkpoint: Path) -> bool:
    """Whether Spark has begun a batch and not committed it."""
    return last_batch(checkpoint, "offsets") > last_batch(checkpoint, "commits")


@dataclass
class RecoveryBench:
    """Fills a state, then ends everything and starts it again, some times."""

    folder: Path
    settings: RecoverySettings
    say: Say

    def __post_init__(self) -> None:
        check_family()
        self._folders = Folders(self.folder)
        self._drivers = 0

    def run(self) -> Iterator[Recovery]:
        """The results, as they come."""
        for size in self.settings.state_gb:
            for sides in self._with_one_state():
                yield from self._restarts(size, sides)

    def _with_one_state(self) -> list[list[str]]:
        """Sides that start from the same files."""
        ours = [side for side in self.settings.sides if side != SPARK]
        native = [side for side in self.settings.sides if side == SPARK]
        return [sides for sides in (ours, native) if sides]

    def _restarts(self, size: float, sides: list[str]) -> Iterator[Recovery]:
        folder = self._folders.fresh("recovery")
        with self._driver(folder, size, sides[0], fills=True) as driver:
            driver.wait("session", SESSION_SECONDS_MAX)
            driver.wait("running", FILL_SECONDS_MAX)
            driver.crash(INTO_BATCH_SECONDS[0])
        for side in sides:
            found = Recovery(side, size)
            for number in range(self.settings.repeat):
                self.say(f"{size:g} GB, {side}: restart {number + 1}")
                self._restart(found, folder, INTO_BATCH_SECONDS[number % len(INTO_BATCH_SECONDS)])
            yield found
        shutil.rmtree(folder, ignore_errors=True)

    def _restart(self, found: Recovery, folder: Path, into_batch_seconds: float) -> None:
        rows = self.settings.rows
        with self._driver(folder, found.state_gb, found.side, fills=False) as driver:
            driver.wait("session", SESSION_SECONDS_MAX)
            first = driver.wait("committed", COMMIT_SECONDS_MAX)
            if first["rows"] != rows:
                raise AnabranchError(f"The first batch had {first['rows']} rows instead of {rows}.")
            found.seconds.append(first["seconds"])
            if found.side != SPARK:
                found.load_seconds.append(first["load_seconds"])
                whole = driver.wait("whole", WHOLE_SECONDS_MAX)
                found.whole_seconds.append(whole["seconds"])
            driver.wait("running", COMMIT_SECONDS_MAX)
            driver.crash(into_batch_seconds)

    def _driver(self, folder: Path, size: float, side: str, *, fills: bool) -> MortalDriver:
        s = self.settings
        keys = keys_of(size, s.payload_bytes)
        plan = DriverPlan(
            str(folder), side, fills, keys, s.payload_bytes, s.rows, s.workers, s.settle_seconds
        )
        self._drivers += 1
        what = f"{size:g} GB, {side}"
        scratch = self.folder / f"driver-{self._drivers}"
        return MortalDriver(plan, scratch, lambda text: self.say(f"{what}: {text}"))
