"""Late rows: those at or before the watermark of the batch before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.state.columnar.values import flat, to_numpy

_MICROS = 1000


def timely(rows: pa.Table, event_time: str | None, late_watermark_ms: int) -> pa.Table:
    """The other rows; without an event time, all."""
    if event_time is None:
        return rows
    values, valid = to_numpy(flat(rows.column(event_time)))
    late = values <= late_watermark_ms * _MICROS
    if valid is not None:
        late &= valid
    return rows.take(np.flatnonzero(~late)) if late.any() else rows
