"""The reasons of decisions, as sentences for people."""

from __future__ import annotations

from typing import Any

from anabranch.autoscale.balance import Balance
from anabranch.autoscale.memory import Failed, ScalerStep
from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.sizing import WorkersNeeded

MIB = 1 << 20


def inputs(need: WorkersNeeded, settings: AutoscaleSettings) -> dict[str, Any]:
    """What a decision rests on, in plain values."""
    model = need.model
    return {
        "arrival_rows_per_second": round(model.arrival, 1),
        "backlog_rows": round(model.backlog),
        "demand_rows_per_second": round(need.demand, 1),
        "worker_rows_per_second": round(model.rate, 1),
        "overhead_seconds": round(model.overhead, 3),
        "batch_seconds": round(model.batch_seconds, 3),
        "batch_rows": round(model.batch_rows),
        "trigger_interval": model.interval,
        "imbalance": round(model.imbalance, 2),
        "skew": round(model.skew, 2),
        "workers_needed": round(need.least, 2),
        "latency_target": settings.latency_target,
        "target_utilization": None if settings.latency_target else settings.target_utilization,
    }


def load(need: WorkersNeeded) -> str:
    """What comes, and what a worker can do."""
    model = need.model
    waiting = f" and {model.backlog:,.0f} wait" if model.backlog >= 1 else ""
    return (
        f"{model.arrival:,.0f} rows/s come{waiting}; a worker does {model.rate:,.0f} rows/s beside "
        f"{model.overhead:.2f} s a batch"
    )


def _goal(settings: AutoscaleSettings) -> str:
    if settings.latency_target is not None:
        return f"batches of at most {settings.latency_target:g} s"
    return f"workers that are busy {settings.target_utilization:.0%} of the time"


def up(need: WorkersNeeded, settings: AutoscaleSettings, to: int, high: int) -> str:
    """More are needed."""
    back = (
        f" (back to {to}: the last step down was too early)"
        if to == high and to > need.good
        else ""
    )
    return f"{load(need)}: {_goal(settings)} need {need.least:.1f} workers{back}."


def down(need: WorkersNeeded, settings: AutoscaleSettings, to: int, seconds: float) -> str:
    """Less is enough."""
    goal = _goal(settings)
    return f"{load(need)}: {goal} have needed no more than {to} workers for {seconds:.0f} s."


def enough(need: WorkersNeeded, settings: AutoscaleSettings, workers: int) -> str:
    """Nothing is to be done."""
    if need.is_source_slow:
        return (
            f"{need.model.lag:,.0f} rows wait in the source, and the workers have time for more: "
            "the source is slow, or a limit of rows a batch holds it back. More workers would not "
            "help."
        )
    return f"{load(need)}: {_goal(settings)} need {need.least:.1f} of {workers} workers."


def cannot_help(need: WorkersNeeded, settings: AutoscaleSettings) -> str:
    """The overhead alone is too much."""
    return (
        f"Batches take {need.model.overhead:.2f} s beside what workers do, and may take "
        f"{settings.latency_target:g} s in all: more workers cannot help. Give Spark's part more "
        "cores or fewer partitions, or a higher latency_target."
    )


def taken_back(step: ScalerStep, brought: float, row_seconds: float) -> str:
    """A step that brought nothing."""
    return (
        f"{step.before} -> {step.after} workers brought {max(0.0, brought):.0%} of what it "
        f"promised: the busiest one still needs {1000 * row_seconds:.3g} ms a row (before: "
        f"{1000 * step.row_seconds_before:.3g} ms). Back to {step.before}: something else is the "
        "limit, cores or another service perhaps."
    )


def remembered(failed: Failed, seconds: float) -> str:
    """It was tried."""
    return (
        f"More than {failed.least} workers brought nothing ({failed.times} tried); tried again in "
        f"{seconds:.0f} s."
    )


def skewed(busiest: str, skew: float, balance: Balance) -> str:
    """Sharing out helps."""
    return (
        f"{busiest} has {skew:.1f} times the work of the mean. Sharing key groups out again makes "
        f"it {balance.reachable:.1f}: done before workers are added."
    )


def hot_group(balance: Balance, workers: int) -> str:
    """Sharing out does not help."""
    return (
        f"Key group {balance.hottest} (on {balance.owner}) alone has {balance.share:.0%} of the "
        f"rows: {workers} workers are as many as it lets help. One key group is on one worker; "
        "spread its keys, or make its rows cheaper."
    )


def backing_off(failures: int, seconds: float) -> str:
    """A step could not be carried out."""
    times = "once" if failures == 1 else f"{failures} times"
    return f"The last step could not be carried out ({times}): tried again in {seconds:.0f} s."


def costs(size: int, seconds: float, limit: float) -> str:
    """A move that is not worth it."""
    return (
        f"But {size / MIB:,.0f} MiB would move for about {seconds:.0f} s, and more than "
        f"{limit:.0f} s is not worth it. Ask for it yourself with more bytes_per_second."
    )
