"""Spark's clocks, as every task of a batch must see them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Spark's clock readings for one batch, in milliseconds; the same on every retry."""

    processing_time_ms: int
    watermark_ms: int
    """Fires event-time timers and closes windows."""
    late_watermark_ms: int
    """Rows at or before it are late: the watermark of the batch before, as in Spark."""
