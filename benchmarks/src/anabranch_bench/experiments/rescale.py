"""`anabranch bench rescale`: latency under an open-loop load while 2 workers become 3."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import Prepared, Say
from anabranch_bench.experiments.rescale_findings import RescaleFindings
from anabranch_bench.experiments.rescale_goals import MoveRate
from anabranch_bench.experiments.steady_cost import SteadyBench
from anabranch_bench.experiments.time_left import TimeLeft
from anabranch_bench.probes.flight_copy import copy_rates
from anabranch_bench.results.cases import CONTROL, NATIVE, STRATEGIES, Case
from anabranch_bench.results.loads import KEY_BYTES, RunLoad, keys_of
from anabranch_bench.results.run_result import Controls, RunResult, brief
from anabranch_bench.runs.key_count_runs import KeyCountRuns, Timing
from anabranch_bench.runs.native import is_available
from anabranch_bench.runs.turns import REST_SECONDS, WARM_SECONDS, Turns

PARTS = ("strategies", "move", "series", "steady", "absolute")
WARM_UP = "warm-up"
"""Part of a run that does not count."""
UNPACED = "order-unaware"
"""For the duration of a move: changes owners first, then only copies."""
MOVES = 4
"""There and back again, twice."""
TRIGGER_SECONDS = 0.5
"""Half of the capacity is to keep half of the machine busy. Batches that begin as soon as the one
before is done keep all of it busy at any rate: the smaller they are, the more of them there are."""
MOVE_SECONDS = 60.0
"""A guess, for the time left."""
CONTROL_EVERY = 3
"""Runs of other strategies have a control run after the first of so many."""
DISK_FACTOR = 8
"""Changelogs, snapshots and copies of both sides, as a multiple of the state."""


@dataclass(frozen=True, slots=True)
class RescaleSettings:
    """Sizes of a benchmark."""

    state_gb: float = 2.0
    payload_bytes: int = 1024
    rate: float | None = None
    """Rows a second; half of the measured capacity if None."""
    timing: Timing = field(default_factory=lambda: Timing(trigger=TRIGGER_SECONDS))
    repeat: int = 1
    live_repeat: int = 3
    """Moves under `live` in one query, at least: one peak on a busy machine is mostly chance."""
    strategies: tuple[str, ...] = (*STRATEGIES, NATIVE)
    series_gb: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    workers: int = 2
    target: int = 3
    absolute_keys: int = 5_000_000
    absolute_rate: float = 20_000
    steady_rounds: int = 60

    @classmethod
    def quick(cls) -> RescaleSettings:
        """A look in a few minutes: small state, few strategies."""
        return cls(
            state_gb=0.1,
            timing=Timing(settle=5, steady=8, trigger=TRIGGER_SECONDS),
            strategies=("live", "order-unaware", "stop-restart", NATIVE),
            series_gb=(0.05, 0.1),
            absolute_keys=200_000,
            steady_rounds=8,
            live_repeat=1,
        )

    def keys(self, state_gb: float) -> int:
        """Keys of a state of this size."""
        return keys_of(state_gb, self.payload_bytes)


@dataclass(frozen=True, slots=True)
class RescaleTask:
    """A piece of the benchmark, with a guess of its duration for the time left."""

    name: str
    seconds: float
    work: Callable[[], None]


@dataclass
class RescaleBench:
    """Runs the parts one after the other in one Spark session; keeps what is done."""

    spark: SparkSession
    folder: Path
    settings: RescaleSettings
    say: Say
    on_run: Callable[[RunResult], None] = lambda run: None
    on_task: Callable[[str], None] = lambda name: None
    found: RescaleFindings = field(default_factory=RescaleFindings)
    _parts: tuple[str, ...] = PARTS
    _prefix: str = ""
    _has_warm_up: bool = False
    _prepared: dict[str, Prepared] = field(default_factory=dict)

    def run(self, parts: tuple[str, ...]) -> None:
        """All parts; what is done is in `found`, also after an interruption."""
        self._parts = parts
        self._check_disk()
        tasks = [task for part in PARTS if part in parts for task in self._plan(part)]
        rest = TimeLeft(sum(task.seconds for task in tasks))
        for number, task in enumerate(tasks):
            left = rest.told(sum(t.seconds for t in tasks[number:]))
            self._prefix = f"[{number + 1}/{len(tasks)}, about {left} left] {task.name}"
            self.on_task(self._prefix)
            self._tell("")
            try:
                task.work()
            except Exception as error:  # what else was asked for is still to be measured
                self.found.notes.append(f"FAILED: {task.name}: {brief(error)}")

    def to_json(self, partial: bool) -> dict[str, Any]:
        """Settings and everything that was found."""
        return self.found.to_json(partial, asdict(self.settings))

    # -- plans --

    def _plan(self, part: str) -> Iterator[RescaleTask]:
        s = self.settings
        match part:
            case "strategies":
                yield from self._plan_strategies()
            case "series":
                for size in s.series_gb:
                    yield from self._plan_series(size)
            case "move":
                if "strategies" not in self._parts:
                    yield self._prepare("strategies", s.keys(s.state_gb), s.payload_bytes)
                yield RescaleTask("unpaced move", 40 + 20 * s.state_gb, self._measure_move)
                yield self._forget("strategies")
            case "steady":
                yield RescaleTask("steady state", 40 + 2.5 * s.steady_rounds, self._measure_steady)
            case "absolute":
                yield self._prepare("absolute", s.absolute_keys, 0)
                yield from self._plan_live("absolute", "absolute")
                yield self._forget("absolute")

    def _plan_strategies(self) -> Iterator[RescaleTask]:
        s = self.settings
        keys = s.keys(s.state_gb)
        others = [Case.parse(t) for t in s.strategies if t not in ("live", CONTROL, NATIVE)]
        yield self._prepare("strategies", keys, s.payload_bytes)
        if "live" in s.strategies:
            yield from self._plan_live("strategies", "strategies")
        yield from self._plan_others(others)
        if "move" not in self._parts:
            yield self._forget("strategies")
        if NATIVE in s.strategies:
            yield self._prepare("native", keys, s.payload_bytes)
            for repeat in range(s.repeat):
                yield self._task("strategies", "native", Case.parse(NATIVE), repeat)
            yield self._forget("native")

    def _plan_others(self, cases: Sequence[Case]) -> Iterator[RescaleTask]:
        """With a control run now and then: a machine is not as fast from hour to hour."""
        name, done = "strategies", 0
        if cases and not self._has_warm_up:
            self._has_warm_up = True
            yield self._warm_up(name)
        for repeat in range(self.settings.repeat):
            for case in cases:
                yield self._task(name, name, case, repeat)
                if done % CONTROL_EVERY == 0:
                    yield self._task(name, name, Case.parse(CONTROL), done // CONTROL_EVERY)
                done += 1
        if cases:
            yield self._last_control(name, -(-done // CONTROL_EVERY))

    def _last_control(self, name: str, number: int) -> RescaleTask:
        """Only if some run has none that is long enough."""
        task = self._task(name, name, Case.parse(CONTROL), number)

        def work() -> None:
            alone = [
                r for r in self.found.results.of_part(name).runs if r.is_good and not r.is_turn
            ]
            if any(
                r.move and r.label != NATIVE and not self.found.results.controls_of(r)
                for r in alone
            ):
                task.work()

        return RescaleTask(f"{name}: control, if it is needed", 1, work)

    def _plan_series(self, size: float) -> Iterator[RescaleTask]:
        s = self.settings
        if size == s.state_gb and "strategies" in self._parts and "live" in s.strategies:
            return  # measured there
        name = f"{size:g} GB"
        yield self._prepare(name, s.keys(size), s.payload_bytes)
        yield from self._plan_live("series", name)
        yield self._forget(name)

    def _plan_live(self, part: str, name: str) -> Iterator[RescaleTask]:
        """In turns with its control, all in one query."""
        timing, count = self.settings.timing, max(self.settings.repeat, self.settings.live_repeat)
        is_rehearsed, self._has_warm_up = self._has_warm_up, True

        def work() -> None:
            prepared = self._found(name)

            def new_run(label: str, number: int) -> RunResult:
                run = self._new_run(part, name, prepared, Case.parse(label), number)
                run.controls = Controls.BESIDE
                return run

            for run in Turns(self._ours, new_run, is_rehearsed).run(prepared, count):
                self._done(run)

        each = 2 * (MOVE_SECONDS + 2 * timing.steady) + REST_SECONDS
        seconds = 90 + count * each + (0 if is_rehearsed else WARM_SECONDS + MOVE_SECONDS)
        yield RescaleTask(f"{name}: live and control in turns", seconds, work)

    # -- tasks --

    def _prepare(self, name: str, keys: int, payload_bytes: int) -> RescaleTask:
        def work() -> None:
            if name == "native" and not is_available(self.spark):
                self.found.notes.append("Spark repartitions checkpoints since 4.2: not measured.")
                return
            made = self._runs_of(name).prepare(keys, payload_bytes)
            self._prepared[name], self.found.capacity[name] = made

        size = keys * (payload_bytes + KEY_BYTES) / 1e9
        seconds = 40 + 80 * size if name == "native" else 30 + 40 * size
        return RescaleTask(f"{name}: loading {size:.2g} GB", seconds, work)

    def _forget(self, name: str) -> RescaleTask:
        def work() -> None:
            if name in self._prepared:
                shutil.rmtree(self._prepared.pop(name).folder, ignore_errors=True)

        return RescaleTask(f"{name}: cleaning up", 1, work)

    def _task(self, part: str, name: str, case: Case, repeat: int) -> RescaleTask:
        def work() -> None:
            if name == "native" and name not in self._prepared:
                return  # it has been said why
            prepared = self._found(name)
            run = self._new_run(part, name, prepared, case, repeat)
            self._runs_of(name).run(run, prepared, self._length_of_others(run))
            self._done(run)

        timing, size = self.settings.timing, self.settings.state_gb
        moving = 90 + 90 * size if name == "native" else 45 + 10 * size
        seconds = moving + timing.settle + 2 * timing.steady
        return RescaleTask(f"{name}: {case.label}, run {repeat + 1}", seconds, work)

    def _warm_up(self, name: str) -> RescaleTask:
        """A run that does not count: the first one has a slower JVM than all others."""
        task = self._task(WARM_UP, name, Case.parse(CONTROL), 0)
        return dataclasses.replace(task, name=f"{name}: warming up")

    def _measure_move(self) -> None:
        moves = self._ours.moves_idle(self._found("strategies"), UNPACED, MOVES)
        self._tell("plain copies of as many bytes")
        copies = copy_rates(max(1 << 20, moves[0][0]), MOVES)
        self.found.move = MoveRate(UNPACED, tuple(moves), tuple(copies))

    def _measure_steady(self) -> None:
        s = self.settings
        bench = SteadyBench(self.spark, self.folder, s.workers, self._tell, rounds=s.steady_rounds)
        self.found.steady = bench.run()

    # -- helpers --

    def _new_run(
        self, part: str, name: str, prepared: Prepared, case: Case, repeat: int
    ) -> RunResult:
        s = self.settings
        rate = s.absolute_rate if part == "absolute" else s.rate
        if rate is None:
            # One rate for all sizes and strategies, from what was loaded first; half of its own
            # for Spark's side.
            known = next(iter(self.found.capacity.values()))
            rate = max(
                1000, round((self.found.capacity["native"] if name == "native" else known) / 2, -3)
            )
        load = RunLoad.key_count(rate, prepared.keys, prepared.payload_bytes)
        return RunResult(load, case, repeat, part)

    def _found(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise AnabranchError("its state could not be loaded.")
        return self._prepared[name]

    def _length_of_others(self, run: RunResult) -> float:
        """A control run lasts as long as what it is compared with."""
        if run.label != CONTROL:
            return 0.0
        same = self.found.results.of_part(run.part).at(run.load).runs
        return max((r.end for r in same if r.is_good and r.move and not r.is_turn), default=0.0)

    def _done(self, run: RunResult) -> None:
        if run.part == WARM_UP:
            return
        self.found.results.runs.append(run)
        in_series = "series" in self._parts and self.settings.state_gb in self.settings.series_gb
        if in_series and run.label in ("live", CONTROL) and run.part == "strategies":
            self.found.results.runs.append(dataclasses.replace(run, part="series"))
        self.on_run(run)

    def _tell(self, text: str) -> None:
        self.say(f"{self._prefix}: {text}" if text else self._prefix)

    @cached_property
    def _ours(self) -> KeyCountRuns:
        s = self.settings
        return KeyCountRuns(self.spark, self.folder, s.timing, s.workers, s.target, self._tell)

    def _runs_of(self, name: str) -> KeyCountRuns:
        return dataclasses.replace(self._ours, is_native=True) if name == "native" else self._ours

    def _check_disk(self) -> None:
        s = self.settings
        largest = max([s.state_gb, *(s.series_gb if "series" in self._parts else ())])
        needed, free = DISK_FACTOR * largest, shutil.disk_usage(self.folder).free / 1e9
        if free < needed:
            raise AnabranchError(
                f"{self.folder} has {free:.0f} GB free; {largest:g} GB of state need about "
                f"{needed:.0f} GB. Set TMPDIR to a larger disk, or take a smaller --state-gb."
            )
