"""Which runs the evaluation makes: parts, workloads, strategies; and how long they may take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch_bench.experiments.evaluation_loads import (
    KEY_COUNT,
    WORKLOADS,
    Scale,
    WorkloadLoad,
    find_load,
    key_count,
)
from anabranch_bench.results.cases import CONTROL, STRATEGIES, Case

PARTS = ("workloads", "meces", "drrs", "megaphone", "rhino")
MECES = ("live", "meces", "order-unaware", "stop-restart")
DRRS = ("live", "drrs", "meces", "megaphone")
PLANS = {
    "megaphone:plan=all-at-once": "all-at-once",
    "megaphone:plan=fluid": "fluid",
    "megaphone": "batched",
}
"""Megaphone's plans by the case that has them."""
RHINO = ("live", "rhino", "stop-restart")

START_SECONDS = 8.0
"""Workers, the query's first batches, its end."""
STEP_SECONDS = 0.4
"""Of a strategy that waits for a batch with each step."""
MOVE_SECONDS = {"lazy": 6, "rhino": 3, CONTROL: 1}
MOVE_SECONDS_OTHERS = 2


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter of key-count that is varied, the others staying as they are."""

    name: str
    factors: tuple[float, ...]

    def load(self, scale: Scale, rate: float | None, factor: float) -> WorkloadLoad:
        """Key-count at this place of the axis."""
        usual = rate or scale.key_count_rate
        if self.name == "state size":
            payload = max(1, round(scale.payload_bytes * factor))
            return key_count(scale, rate=usual, payload_bytes=payload)
        if self.name == "rate":
            return key_count(scale, rate=usual * factor)
        return key_count(scale, rate=usual, zipf=factor)

    def places(self, scale: Scale, rate: float | None) -> dict[str, WorkloadLoad]:
        """All of them, by the value."""
        loads = {factor: self.load(scale, rate, factor) for factor in self.factors}
        return {self.shown(scale, rate, factor): load for factor, load in loads.items()}

    def shown(self, scale: Scale, rate: float | None, factor: float) -> str:
        """The value, with its unit."""
        load = self.load(scale, rate, factor)
        if self.name == "state size":
            return load.about.rpartition(", ")[2]
        return f"{load.rate:,.0f} rows/s" if self.name == "rate" else f"{factor:g}"


@dataclass(frozen=True)
class EvaluationSettings:
    """What to measure."""

    parts: tuple[str, ...] = PARTS
    workloads: tuple[str, ...] = WORKLOADS
    strategies: tuple[str, ...] = STRATEGIES
    """Of the part `workloads`, on each of them."""
    rate: float | None = None
    """Rows a second of all workloads; their own ones if None."""
    settle: float = 5.0
    """Seconds under load that do not count."""
    steady: float = 15.0
    """Seconds under load before and after the move."""
    repeat: int = 1
    warm_each: bool = True
    """Whether each workload is run once before it counts, for the JVM; else only the first one."""
    workers: int = 2
    target: int = 3
    scale: Scale = field(default_factory=Scale)
    axes: tuple[Axis, ...] = (
        Axis("state size", (0.25, 1, 4)),
        Axis("rate", (0.5, 1, 1.5)),
        Axis("Zipf exponent", (0, 0.5, 1, 1.5)),
    )
    axis_strategies: tuple[str, ...] = (*DRRS, CONTROL)
    compared: tuple[str, ...] = STRATEGIES
    """Strategies of key-count, and those that the other parts may use."""
    meces_workloads: tuple[str, ...] = (KEY_COUNT, "q4", "q7", "q8")
    drrs_workloads: tuple[str, ...] = (KEY_COUNT, "q7", "q8")

    @classmethod
    def quick(cls) -> EvaluationSettings:
        """About ten minutes: every workload with `live`, every strategy on key-count."""
        return cls(
            strategies=("live",),
            settle=1.0,
            steady=2.5,
            warm_each=False,
            scale=Scale.quick(),
            axes=(
                Axis("state size", (1, 4)),
                Axis("rate", (0.5, 1)),
                Axis("Zipf exponent", (0, 1)),
            ),
            axis_strategies=("live", "drrs"),
            meces_workloads=(KEY_COUNT,),
            drrs_workloads=(KEY_COUNT,),
        )

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> EvaluationSettings:
        """From what `dataclasses.asdict` made of them."""
        given = {name: _tuple_of(value) for name, value in told.items()}
        axes = tuple(Axis(axis["name"], tuple(axis["factors"])) for axis in told["axes"])
        return cls(**given | {"axes": axes, "scale": Scale(**told["scale"])})

    def __post_init__(self) -> None:
        for name in self.workloads:
            find_load(name, self.scale)
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown or not self.parts:
            raise InvalidArgument(f"Parts are {', '.join(PARTS)}; got {', '.join(unknown) or '-'}.")
        if not self.settle >= 0 or not self.steady > 0 or self.repeat < 1:
            raise InvalidArgument("--seconds must be above 0, --repeat at least 1.")

    def load(self, name: str) -> WorkloadLoad:
        """A workload at the rate of this evaluation."""
        return find_load(name, self.scale, self.rate)


def _tuple_of(value: Any) -> Any:
    """JSON has lists only."""
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run."""

    load: WorkloadLoad
    case: Case
    repeat: int = 0

    @property
    def key(self) -> tuple[WorkloadLoad, str, int]:
        """Runs of several parts that have the same are made once."""
        return self.load, self.case.label, self.repeat

    @property
    def name(self) -> str:
        """For people."""
        again = f", run {self.repeat + 1}" if self.repeat else ""
        return f"{self.load.title}: {self.case.label}{again}"


def plan(settings: EvaluationSettings) -> list[PlannedRun]:
    """All runs of all parts, each once, those of a workload together."""
    found: dict[tuple[WorkloadLoad, str, int], PlannedRun] = {}
    for part in settings.parts:
        for planned in runs_of(part, settings):
            found.setdefault(planned.key, planned)
    loads = list(dict.fromkeys(planned.load for planned in found.values()))
    ordered = sorted(found.values(), key=lambda s: (loads.index(s.load), s.repeat, _rank(s)))
    return ordered


def _rank(planned: PlannedRun) -> int:
    """`live` first, then the control run, which is as long as that one."""
    return {"live": 0, CONTROL: 1}.get(planned.case.label, 2)


def runs_of(part: str, settings: EvaluationSettings) -> list[PlannedRun]:
    """The runs that a part shows."""
    return [
        PlannedRun(load, Case.parse(label), repeat)
        for load, labels in _cases(part, settings)
        for label in labels
        for repeat in range(settings.repeat)
    ]


def _cases(part: str, settings: EvaluationSettings) -> Iterator[tuple[WorkloadLoad, list[str]]]:
    match part:
        case "workloads":
            for name in settings.workloads:
                more = settings.compared if name == KEY_COUNT else ()
                labels = dict.fromkeys((*settings.strategies, *more, CONTROL))
                yield settings.load(name), list(labels)
        case "meces":
            yield from _comparison(settings.meces_workloads, MECES, settings)
        case "drrs":
            yield from _comparison(settings.drrs_workloads, DRRS, settings)
            yield from _sensitivity(settings)
        case "megaphone":
            yield from _comparison((KEY_COUNT,), tuple(PLANS), settings)
        case "rhino":
            yield from _comparison((KEY_COUNT,), RHINO, settings)


def _comparison(
    names: tuple[str, ...], labels: tuple[str, ...], settings: EvaluationSettings
) -> Iterator[tuple[WorkloadLoad, list[str]]]:
    """Key-count always, other workloads if they were not excluded."""
    for name in names:
        if name == KEY_COUNT or name in settings.workloads:
            yield settings.load(name), [*_chosen(labels, settings), CONTROL]


def _sensitivity(settings: EvaluationSettings) -> Iterator[tuple[WorkloadLoad, list[str]]]:
    labels = _chosen(settings.axis_strategies, settings)
    for axis in settings.axes:
        for factor in axis.factors:
            yield axis.load(settings.scale, settings.rate, factor), labels


def _chosen(labels: tuple[str, ...], settings: EvaluationSettings) -> list[str]:
    """Those whose strategy was not excluded."""
    allowed = {Case.parse(text).strategy for text in settings.compared} | {None}
    return [label for label in labels if Case.parse(label).strategy in allowed]


def warm_ups(runs: list[PlannedRun], settings: EvaluationSettings) -> list[PlannedRun]:
    """Runs that do not count: what is run first on a JVM is slower than what comes later."""
    loads = list(dict.fromkeys(planned.load for planned in runs))
    return [
        PlannedRun(load, Case.parse(CONTROL)) for load in loads[: None if settings.warm_each else 1]
    ]


def seconds_of_all(runs: Iterable[PlannedRun], settings: EvaluationSettings) -> float:
    """A guess of the duration of several runs."""
    return sum(seconds_of(planned, settings) for planned in runs)


def seconds_of(planned: PlannedRun, settings: EvaluationSettings) -> float:
    """A guess of the duration of a run."""
    label, groups = planned.case.label, settings.scale.key_groups / settings.target
    move: float = MOVE_SECONDS.get(planned.case.strategy or CONTROL, MOVE_SECONDS_OTHERS)
    if planned.case.strategy == "megaphone":
        steps = {"all-at-once": 1.0, "fluid": groups}.get(PLANS.get(label, ""), groups / 4)
        move = steps * STEP_SECONDS
    loading = planned.load.preload_rows / planned.load.preload_rate
    return START_SECONDS + loading + settings.settle + 2 * settings.steady + move
