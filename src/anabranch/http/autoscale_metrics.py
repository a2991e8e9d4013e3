"""Metrics of the autoscaler, from its entries in the journal."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from anabranch.model.journal_entry import JournalEntry

INPUTS = {
    "arrival_rows_per_second": "Rows a second that come to the query that decides.",
    "backlog_rows": "Rows that wait and should not.",
    "worker_rows_per_second": "True rate: rows in a useful second of a worker.",
    "overhead_seconds": "Seconds of a batch that no worker changes.",
    "skew": "Busiest worker to the mean, from batch to batch.",
}
"""Of a decision: which are shown, and what they are."""


class AutoscaleMetrics:
    """Counts decisions, and shows what the last one rests on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "anabranch_autoscale_decisions",
            "Decisions that differ from the one before.",
            ["action", "rule", "mode"],
            registry=registry,
        )
        self._failed = Counter(
            "anabranch_autoscale_failures", "Steps not carried out.", registry=registry
        )
        self._workers = Gauge(
            "anabranch_autoscale_workers", "Workers that there are.", registry=registry
        )
        self._wanted = Gauge(
            "anabranch_autoscale_workers_wanted", "Workers that would be right.", registry=registry
        )
        self._missing = Gauge(
            "anabranch_autoscale_workers_without_room",
            "Workers that are wanted, and that no host has room for.",
            registry=registry,
        )
        self._inputs = {
            name: Gauge(f"anabranch_autoscale_{name}", text, registry=registry)
            for name, text in INPUTS.items()
        }

    def note(self, entry: JournalEntry) -> None:
        """A decision was written down."""
        told = entry.details
        if "failed" in told:
            self._failed.inc()
            return
        self._decisions.labels(told["action"], told["rule"], told["mode"]).inc()
        self._workers.set(told["workers"])
        self._wanted.set(told["wanted"])
        self._missing.set(told["missing"])
        for name, gauge in self._inputs.items():
            if name in told["inputs"]:
                gauge.set(told["inputs"][name])
