"""What a run is compared with, and whether that is fair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.loadtest.latency import Latency, median, typical
from anabranch_bench.bench.rescale_runs import CONTROL, Run

STOLEN_DIFFERENCE_MAX = 0.1
"""Share of the cores. The load is half of what the cores can do: with a tenth less of them, or
more, every batch takes another time, whatever moves."""

Pick = Callable[[Latency], float]


def controls_of(run: Run, runs: Sequence[Run]) -> list[Run]:
    """What a run is compared with: the times without a move just before and after it in the same
    query, where the cores were as much ours; else control runs of the same part, state and rate
    that last as long as its move."""
    what, end = (run.part, run.state_bytes, run.rate), run.move.end if run.move else 0.0
    same = (r for r in runs if r.label == CONTROL and (r.part, r.state_bytes, r.rate) == what)
    known = [r for r in same if not r.error and r.timeline and r.is_turn == run.is_turn]
    if run.is_turn:
        # Moves differ in length: some of these times are a little shorter than the move.
        beside = (run.repeat, run.repeat + 1)
        return [r for r in known if r.repeat in beside and _has_such_cores(r, run)]
    return [r for r in known if r.timeline and r.timeline.end >= end]


def _has_such_cores(control: Run, run: Run) -> bool:
    """Where nobody tells, it has."""
    return not abs(control.cores.stolen - run.cores.stolen) > STOLEN_DIFFERENCE_MAX


def judged(runs: Sequence[Run], label: str) -> list[Run]:
    """The runs with a label that say something; not turns with nothing to be compared with."""
    done = [r for r in runs if r.label == label and not r.error]
    return [r for r in done if not r.is_turn or controls_of(r, runs)]


def left_out(runs: Sequence[Run], label: str) -> str:
    """Says which moves have nothing to be compared with; empty if all do."""
    moved = [r for r in runs if r.label == label and r.move and not r.error]
    compared = judged(runs, label)
    alone = [r for r in moved if r not in compared]
    if not alone:
        return ""
    shares = ", ".join(str(r.cores) or "nobody knows of the cores" for r in alone)
    return (
        f"{len(alone)} of {len(moved)} moves left out ({shares}): the times without a move beside "
        "them had a tenth of the cores more or less, or failed"
    )


def control_during(run: Run, runs: Sequence[Run]) -> Latency | None:
    """What the control runs showed in the run's window: medians, as one alone is mostly chance."""
    found = (c.during(run.move) for c in controls_of(run, runs) if run.move)
    return typical([latency for latency in found if latency and latency.rows])


def control_before(run: Run, runs: Sequence[Run]) -> Latency | None:
    """The same before the move, where both should be alike."""
    found = (c.before(run.steady) for c in controls_of(run, runs) if run.steady)
    return typical([latency for latency in found if latency and latency.rows])


def ratios(runs: Sequence[Run], label: str, pick: Pick, when: str = "during") -> list[float]:
    """Of each repeat: the strategy's figure before, during or after the move to the controls'.

    After it there are other workers than before: compared is with the controls during the move.
    """
    found = []
    for run in judged(runs, label):
        mine = {"before": run.before, "during": run.during, "after": run.after}[when]()
        theirs = (control_before if when == "before" else control_during)(run, runs)
        if mine and theirs and pick(theirs):
            found.append(pick(mine) / pick(theirs))
    return found


def growth(runs: Sequence[Run], label: str, pick: Pick) -> list[float]:
    """As `ratios`, with each run's figure as a multiple of its own before the move: on a shared
    machine whole runs are slower or faster than others, from their beginning on."""
    found = []
    for run in judged(runs, label):
        mine = _grown(run, run, pick)
        theirs = [_grown(control, run, pick) for control in controls_of(run, runs)]
        known = [times for times in theirs if times is not None]
        if mine is not None and known:
            found.append(mine / median(known))
    return found


def _grown(run: Run, windows: Run, pick: Pick) -> float | None:
    """From before another run's move to during it."""
    if windows.steady is None or windows.move is None:
        return None
    before, during = run.before(windows.steady), run.during(windows.move)
    return pick(during) / pick(before) if before and during and pick(before) else None
