"""Late rows: those at or before the watermark of the batch before."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def timely(rows: Any, event_time_at: int | None, late_watermark_ms: int) -> Any:
    """The other rows; without an event time, all."""
    if event_time_at is None:
        return rows
    times = rows.column(event_time_at + 1)
    if pa.types.is_struct(times.type):
        times = pc.struct_field(times, [1])
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    late = pc.less_equal(micros, late_watermark_ms * 1000)
    if not pc.any(late).as_py():
        return rows
    return rows.filter(pc.invert(pc.fill_null(late, False)))
