"""Made-up runs: batches of even length, with a stall where a move shall hurt."""

from __future__ import annotations

from typing import Any

from tests.unit.loadtest.timelines import LOAD as STEADY_LOAD
from tests.unit.loadtest.timelines import RATE, back_to_back

from anabranch.loadtest.latency import Batch, Timeline, TimeWindow
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.experiments.evaluation_loads import Scale, WorkloadLoad, find_load
from anabranch_bench.experiments.evaluation_plan import PlannedRun
from anabranch_bench.experiments.rescale_findings import tables_of
from anabranch_bench.reports.run_tables import failures
from anabranch_bench.reports.tables import Table
from anabranch_bench.results.cases import CONTROL, Case
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import Controls, MeasuredMove, RunResult
from anabranch_bench.workloads.verify import Verification

START = 1000.0
SETTLE = 2.0
MOVE = TimeWindow(10.0, 13.0)
END = 24.0
RIGHT = Verification("out", 10, 10)
WRONG = Verification("out", 10, 9, ("1 missing of {'k': 3}",), 1)
LOAD = find_load("key-count", Scale.quick(), 1000)
LATER = Timeline(STEADY_LOAD, [])


# -- of the evaluation --


def timeline(batch: float = 0.5, stall: float = 0.0, rate: float = 1000) -> Timeline:
    """Back to back; the batch that runs when the move begins takes so much longer."""
    load = OpenLoop(0, START, rate)
    batches, row, now, stalled = [], 0, START, False
    while now < START + END:
        end_row, done = load.end_of_batch(row, now), now + batch
        if not stalled and done > START + MOVE.start:
            done, stalled = done + stall, True
        if end_row > row:
            batches.append(Batch(row, end_row, now, done))
        row, now = end_row, done
    return Timeline(load, batches)


def report(**more: Any) -> dict[str, Any]:
    """What a move tells: two batches of one operator, one of which fetched."""
    batch = {"operator": "counts", "seconds": 0.5, "wait_ms": 10, "apply_ms": 100, "write_ms": 20}
    return {
        "bytes": 5_000_000,
        "groups": 21,
        "counters": {"steps": 6},
        "batches": [batch | {"epoch": 7, "load_ms": 200}, batch | {"epoch": 8, "load_ms": 0}],
        **more,
    }


def result(
    label: str = "live", load: WorkloadLoad = LOAD, stall: float = 0.0, **more: Any
) -> RunResult:
    """A run; a control run has no move."""
    made = RunResult(load, Case.parse(label), controls=Controls.PAIRED, settle=SETTLE)
    made.timeline = timeline(0.5, stall, load.rate)
    made.verifications, made.capacity, made.rows = [RIGHT], 4 * load.rate, 24_000
    if label != CONTROL:
        made.moves = [MeasuredMove(MOVE, report())]
    for name, value in more.items():
        setattr(made, name, value)
    return made


def pair(load: WorkloadLoad = LOAD, **more: Any) -> RunSet:
    """`live` and its control run."""
    return RunSet([result(load=load, **more), result(CONTROL, load)])


def from_plan(planned: PlannedRun, seconds_min: float = 0.0, say: Any = None) -> RunResult:
    """A runner: every run goes well; those that block have a stall."""
    stall = 3.0 if planned.case.label in ("stop-restart", "order-unaware") else 0.0
    return result(planned.case.label, planned.load, stall, repeat=planned.repeat)


def planned(label: str = "live", load: WorkloadLoad = LOAD) -> PlannedRun:
    """A run that is planned."""
    return PlannedRun(load, Case.parse(label))


# -- of `bench rescale` --


def make_run(
    label: str,
    timeline: Timeline,
    move: TimeWindow | None = None,
    part: str = "strategies",
    keys: int = 2_000_000,
    repeat: int = 0,
    peers: int | None = 0,
) -> RunResult:
    """A run over a prepared state."""
    load = RunLoad.key_count(RATE, keys, 1024)
    run = RunResult(load, Case.parse(label), repeat, part, settle=2.0)
    run.timeline, run.peers = timeline, peers
    run.moves = [MeasuredMove(move, {"bytes": 5_000_000, "groups": 85})] if move else []
    return run


def four_runs(live_stall: float) -> list[RunResult]:
    """`live`, its control run, and two ways that stop."""
    stall = (10, 10 + live_stall) if live_stall else None
    return [
        make_run("live", back_to_back(0.5, 30, stall), TimeWindow(10, 14)),
        make_run("control", back_to_back(0.5, 30)),
        make_run("stop-restart", back_to_back(0.5, 50, (10, 25)), TimeWindow(10, 25)),
        make_run("spark", back_to_back(0.5, 90, (10, 60)), TimeWindow(10, 60)),
    ]


def in_turns(runs: list[RunResult]) -> list[RunResult]:
    """As parts of one query."""
    for run in runs:
        run.controls = Controls.BESIDE
    return runs


def tables(runs: list[RunResult]) -> str:
    """All that `bench rescale` shows of its runs."""
    shown = RunSet(runs)
    return "\n".join(table.markdown() for table in (*tables_of(shown), failures(shown)))


def column(table: Table, name: str) -> list[str]:
    """The cells of a column."""
    place = table.columns.index(name)
    return [row[place] for row in table.rows]
