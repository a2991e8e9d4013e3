"""Metrics for Prometheus, in a registry of our own that is filled when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from anabranch.coordinator.move_handle import CANCELLED, STOPPED
from anabranch.http.autoscale_metrics import AutoscaleMetrics
from anabranch.model.journal_entry import EntryKind, JournalEntry
from anabranch.model.stats import TIMES
from anabranch.protocol.move_queue import SUPERSEDED

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
PHASES = {name: name.removesuffix("_ms") for name in TIMES}

OUTCOMES = {
    "done": "done",
    "failed": "failed",
    CANCELLED: "cancelled",
    STOPPED: "stopped",
    SUPERSEDED: "superseded",
}
CAUSES = {
    name: name for name in ("program", "command line", "page", "api", "autoscaler", "timeout")
}

MetricsPicture = Callable[[], Mapping[str, Any]]
LagGauge = Callable[[], Mapping[str, int]]


class Metrics:
    """Counts what happens, and asks for the rest at each scrape."""

    def __init__(self, status: MetricsPicture, lag: LagGauge) -> None:
        self._registry = CollectorRegistry()
        self._batch = Histogram(
            "anabranch_batch_seconds",
            "From the first task of a batch to its manifest.",
            ["operator"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._phase = Histogram(
            "anabranch_batch_phase_seconds",
            "The slowest transaction of a batch, by what it did.",
            ["operator", "phase"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._rows = self._counter("rows_input", "Rows that lanes sent.", "operator")
        self._late = self._counter("rows_late", "Rows behind the watermark.", "operator")
        self._failed = self._counter("batches_failed", "Batches that ended in error.", "operator")
        self._moves = self._counter(
            "reconfigurations", "Reconfigurations.", "strategy", "outcome", "cause"
        )
        self._moved = self._counter("moved_bytes", "Bytes of state that moves sent.")
        self._ended = self._counter("worker_ends", "Processes that ended unasked.", "worker")
        self._pause = Histogram(
            "anabranch_reconfiguration_pause_seconds",
            "The longest that a batch waited in a reconfiguration.",
            ["strategy"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._autoscale = AutoscaleMetrics(self._registry)
        self._registry.register(_StatusCollector(status, lag))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"anabranch_{name}", text, labels, registry=self._registry)

    def note(self, entry: JournalEntry) -> None:
        """Something has happened."""
        match entry.kind:
            case EntryKind.BATCH if entry.operator is not None:
                self._batch_done(entry, entry.operator)
            case EntryKind.BATCH_FAILED:
                self._failed.labels(entry.operator or "").inc()
            case EntryKind.AUTOSCALE:
                self._autoscale.note(entry)
            case EntryKind.WORKER_ENDED:
                self._ended.labels(entry.worker or "").inc()
            case EntryKind.MOVE_ENDED:
                strategy = str(entry.details.get("strategy"))
                about = (str(entry.details.get(name)) for name in ("outcome", "cause"))
                self._moves.labels(strategy, *map(_short, about, (OUTCOMES, CAUSES))).inc()
                self._moved.inc(entry.bytes or 0)
                self._pause.labels(strategy).observe(entry.details.get("pause_seconds") or 0.0)
            case _:
                pass

    def _batch_done(self, entry: JournalEntry, operator: str) -> None:
        if entry.seconds is not None:
            self._batch.labels(operator).observe(entry.seconds)
        for name, phase in PHASES.items():
            self._phase.labels(operator, phase).observe((getattr(entry, name) or 0) / 1000)
        self._rows.labels(operator).inc(entry.rows or 0)
        self._late.labels(operator).inc(entry.details.get("rows_dropped_late", 0))

    def text(self) -> bytes:
        """What Prometheus reads."""
        return generate_latest(self._registry)


class _StatusCollector:
    """Gauges from `status()`."""

    def __init__(self, status: MetricsPicture, lag: LagGauge) -> None:
        self._status, self._lag = status, lag

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked when it is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """At a scrape."""
        status = self._status()
        yield from _of_workers(status["workers"])
        yield from _of_operators(status["operators"])
        skew = GaugeMetricFamily(
            "anabranch_group_skew_ratio", "Busiest worker to the mean, by seconds of applying."
        )
        skew.add_metric([], _skew(status["workers"]))
        yield skew
        ahead = GaugeMetricFamily(
            "anabranch_source_lag_rows",
            "Rows that the sources of its query have and it has not read.",
            labels=["operator"],
        )
        for operator, rows in self._lag().items():
            ahead.add_metric([operator], rows)
        yield ahead


def _short(text: str, known: Mapping[str, str]) -> str:
    """A label has few values: what somebody wrote is none of them."""
    return next((name for start, name in known.items() if text.startswith(start)), "other")


def _of_workers(workers: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("anabranch_worker_up", "1: in service.", labels=["worker"])
    restarts = CounterMetricFamily(
        "anabranch_worker_restarts", "Processes that were replaced.", labels=["worker"]
    )
    memory = GaugeMetricFamily(
        "anabranch_worker_resident_bytes", "Memory of the process.", labels=["worker"]
    )
    busy = CounterMetricFamily(
        "anabranch_worker_busy_seconds",
        "Seconds busy since the process started.",
        labels=["worker", "operator", "activity"],
    )
    stuck = GaugeMetricFamily(
        "anabranch_worker_stuck_seconds",
        "How long the longest call of user code has not come back; none below 10 s.",
        labels=["worker", "operator"],
    )
    for worker, shown in workers.items():
        for operator, seconds in _stuck(shown["stuck"]).items():
            stuck.add_metric([worker, operator], seconds)
        up.add_metric([worker], float(shown["status"] == "up"))
        restarts.add_metric([worker], shown["restarts"])
        if shown["resident_bytes"] is not None:
            memory.add_metric([worker], shown["resident_bytes"])
        for operator, seconds in shown["busy_seconds"].items():
            for activity, count in seconds.items():
                busy.add_metric([worker, operator, activity], count)
    yield from (up, restarts, memory, busy, stuck)


def _stuck(calls: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    longest: dict[str, float] = {}
    for call in calls:
        operator = call["operator"]
        longest[operator] = max(longest.get(operator, 0.0), call["seconds"])
    return longest


def _of_operators(operators: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"anabranch_{name}", text, labels=["operator"])

    rows, size = gauge("state_rows", "Entries of state."), gauge("state_bytes", "Their size.")
    epoch = gauge("last_epoch", "The last batch whose state is durable.")
    committed = gauge("last_commit_timestamp_seconds", "When it became so, as Unix time.")
    for operator, shown in operators.items():
        rows.add_metric([operator], shown["rows"])
        size.add_metric([operator], shown["bytes"])
        if shown["last_epoch"] is not None:
            epoch.add_metric([operator], shown["last_epoch"])
        ended = [b["started"] + b["seconds"] for b in shown["batches"] if b["seconds"] is not None]
        if ended:
            committed.add_metric([operator], ended[-1])
    yield from (rows, size, epoch, committed)


def _skew(workers: Mapping[str, Mapping[str, Any]]) -> float:
    seconds = [
        sum(each.get("applying", 0.0) for each in shown["busy_seconds"].values())
        for shown in workers.values()
    ]
    mean = sum(seconds) / len(seconds) if seconds else 0.0
    return max(seconds) / mean if mean else 1.0
