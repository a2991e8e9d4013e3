"""What a query says about its own batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a query says about one of its batches."""

    epoch: int
    started: float
    """Unix time at which its trigger fired."""
    seconds: float
    """Of all of the trigger."""
    source_rows: int
    lag_rows: int
    """That waited in its sources when it began, beside its own; 0 if they do not tell."""
    run_ms: int = 0
    """Of the whole of the batch's stages and the sink, our operators among them."""
    plan_ms: int = 0
    commit_ms: int = 0
    """Asking sources for offsets, and writing offsets and commits down."""


@dataclass(frozen=True, slots=True)
class QueryReports:
    """The last batches of a query, as it sees them."""

    interval: float = 0.0
    """Seconds between triggers; 0: at once."""
    batches: tuple[BatchReport, ...] = ()
