"""Signals as tests need them: batches of a query whose workers do a hundred rows a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anabranch.autoscale.decide import decide, gate, performed
from anabranch.autoscale.decision import Decision
from anabranch.autoscale.memory import NOTHING, ScalerMemory
from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.signals import FleetSignals, Outlook, QueryLoad, SignalBatch, Signals

TARGET = AutoscaleSettings("act", 1, 8, latency_target=1.0)
BUSY = AutoscaleSettings("act", 1, 8)
OVERHEAD, ROW_SECONDS = 0.3, 0.01


def batch(
    started: float,
    rows: int,
    workers: int = 2,
    shares: Mapping[str, float] | None = None,
    **more: Any,
) -> SignalBatch:
    """As the model says that it is."""
    even = {f"w{number + 1}": 1 / workers for number in range(workers)}
    useful = {w: share * rows * ROW_SECONDS for w, share in (shares or even).items()}
    overhead = more.pop("overhead", OVERHEAD)
    seconds = more.pop("seconds", overhead + max(useful.values()))
    return SignalBatch(started, seconds, rows, useful, workers, **more)


def load(
    rate: float,
    workers: int = 2,
    start: float = 0.0,
    seconds: float = 40.0,
    name: str = "q",
    period: float = 1.0,
    **more: Any,
) -> QueryLoad:
    """A batch each second, of the rows that came."""
    count = round(seconds / period)
    rows = round(rate * period)
    batches = (batch(start + n * period, rows, workers, **more) for n in range(count))
    return QueryLoad(name, tuple(batches))


def signals(
    *queries: QueryLoad, workers: int = 2, now: float | None = None, **fleet: Any
) -> Signals:
    """Right after the last batch."""
    ends = [query.batches[-1].ended for query in queries if query.batches]
    return Signals(
        max(ends, default=0.0) if now is None else now, queries, FleetSignals(workers, **fleet)
    )


def later(of: Signals, rows: int | None = None, workers: int | None = None, **more: Any) -> Signals:
    """The same load, one batch further."""
    query = of.queries[0]
    last = query.batches[-1]
    n = workers or of.fleet.workers
    new = batch(last.started + 1, last.rows if rows is None else rows, n, **more)
    queries = (replace(query, batches=(*query.batches[1:], new)), *of.queries[1:])
    return Signals(new.ended, queries, replace(of.fleet, workers=n))


class Looking:
    """An autoscaler that is asked again and again."""

    def __init__(self, settings: AutoscaleSettings, memory: ScalerMemory = NOTHING) -> None:
        self.settings, self.memory = settings, memory

    def asked(self, at: Signals) -> Decision:
        """One decision."""
        found, self.memory = decide(self.settings, at, self.memory)
        return found

    def done(self, decision: Decision, at: Signals) -> Signals:
        """The decision's move has begun and ended."""
        assert decision.is_action
        decision = gate(self.settings, decision, Outlook(100, 0.1), self.memory)
        self.memory = performed(self.settings, decision, at.now, self.memory)
        workers = decision.to or decision.workers
        return replace(at, fleet=replace(at.fleet, workers=workers))

    def until(self, at: Signals, batches: int, **more: Any) -> tuple[Decision, Signals]:
        """SignalBatch after batch; the last decision, or the first that acts."""
        found = self.asked(at)
        for _ in range(batches):
            if found.is_action:
                break
            at = later(at, **more)
            found = self.asked(at)
        return found, at
