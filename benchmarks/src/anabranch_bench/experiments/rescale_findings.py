"""What `anabranch bench rescale` found: runs and other figures; their tables, verdicts, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch_bench.experiments.rescale_goals import (
    MoveRate,
    SteadyCost,
    judge_absolute,
    judge_live,
    judge_move,
    judge_others,
    judge_series,
    judge_steady,
)
from anabranch_bench.probes.machine import machine
from anabranch_bench.reports.report import document
from anabranch_bench.reports.run_tables import strategies
from anabranch_bench.reports.tables import Table
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.stored_runs import runs_from_json
from anabranch_bench.results.verdicts import Verdict


@dataclass
class RescaleFindings:
    """Filled while the benchmark runs, or read from a file."""

    results: RunSet = field(default_factory=RunSet)
    move: MoveRate | None = None
    steady: SteadyCost | None = None
    capacity: dict[str, float] = field(default_factory=dict)
    """Rows a second, by the state that was loaded."""
    notes: list[str] = field(default_factory=list)
    """What could not be measured."""
    machine: dict[str, Any] = field(default_factory=machine)
    """What it ran on, and when."""

    @property
    def has_failed(self) -> bool:
        """Whether something that was asked for could not be measured."""
        return any(run.error for run in self.results.runs) or bool(self.notes)

    def verdicts(self) -> list[Verdict]:
        """What the figures say, as far as they are there."""
        return [
            *judge_live(self.results),
            *judge_series(self.results),
            *judge_others(self.results),
            *judge_move(self.move),
            *judge_steady(self.steady, self.results),
            *judge_absolute(self.results),
        ]

    def to_json(self, partial: bool, settings: dict[str, Any]) -> dict[str, Any]:
        """Everything: settings, machine, runs with all batches, verdicts."""
        move = None if self.move is None else {**asdict(self.move), "rates": self.move.rates}
        return document(
            "rescale",
            partial,
            self.machine,
            settings,
            self.results,
            capacity_rows_per_second=self.capacity,
            notes=self.notes,
            verdicts=[verdict.to_json() for verdict in self.verdicts()],
            move=move,
            steady=None if self.steady is None else asdict(self.steady),
        )

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RescaleFindings:
        """What `to_json` was told of; verdicts are made anew from the runs."""
        move, steady = told["move"], told["steady"]
        return cls(
            runs_from_json(told["runs"]),
            None if move is None else _move_rate(move),
            None if steady is None else SteadyCost(*map(tuple, (steady["fine"], steady["coarse"]))),
            told["capacity_rows_per_second"],
            told["notes"],
            told["machine"],
        )


def _move_rate(told: Mapping[str, Any]) -> MoveRate:
    moves = tuple((size, seconds) for size, seconds in told["moves"])
    return MoveRate(told["strategy"], moves, tuple(told["copies"]))


def tables_of(results: RunSet) -> list[Table]:
    """Every strategy before, during and after its move, for each part and size of the state."""
    groups = list(dict.fromkeys((r.part, r.load.state_bytes) for r in results.runs))
    made = []
    for part, size in groups:
        if part == "series" and ("strategies", size) in groups:
            continue  # measured, and shown, there
        some = results.of_part(part).of_size(size)
        rates = sorted({f"{load.rate:,.0f}" for load in some.loads()}, key=len)
        title = f"{part}: {some.loads()[0].about}, {' and '.join(rates)} rows/s"
        made.append(strategies(title, some))
    return made
