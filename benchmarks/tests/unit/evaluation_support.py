"""Made-up runs of the evaluation: batches of even length, with a stall where a move shall hurt."""

from __future__ import annotations

from typing import Any

from anabranch.loadtest.latency import Batch, Timeline, TimeWindow
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.bench.evaluation_loads import Scale, WorkloadLoad, find_load
from anabranch_bench.bench.evaluation_plan import Spec
from anabranch_bench.bench.evaluation_results import Result, Results
from anabranch_bench.bench.rescale_runs import CONTROL, Case
from anabranch_bench.workloads.verify import Verification

START = 1000.0
SETTLE = 2.0
MOVE = TimeWindow(10.0, 13.0)
END = 24.0
RIGHT = Verification("out", 10, 10)
WRONG = Verification("out", 10, 9, ("1 missing of {'k': 3}",), 1)
LOAD = find_load("key-count", Scale.quick(), 1000)


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
) -> Result:
    """A run; a control run has no move."""
    made = Result(load, label, settle=SETTLE, timeline=timeline(0.5, stall, load.rate))
    made.verdicts, made.capacity, made.rows = [RIGHT], 4 * load.rate, 24_000
    if label != CONTROL:
        made.move, made.report = MOVE, report()
    for name, value in more.items():
        setattr(made, name, value)
    return made


def pair(load: WorkloadLoad = LOAD, **more: Any) -> Results:
    """`live` and its control run."""
    return Results([result(load=load, **more), result(CONTROL, load)])


def from_spec(spec: Spec, seconds_min: float = 0.0, say: Any = None) -> Result:
    """A runner: every run goes well; those that block have a stall."""
    stall = 3.0 if spec.case.label in ("stop-restart", "order-unaware") else 0.0
    return result(spec.case.label, spec.load, stall, repeat=spec.repeat)


def spec(label: str = "live", load: WorkloadLoad = LOAD) -> Spec:
    """A run that is planned."""
    return Spec(load, Case.parse(label))
