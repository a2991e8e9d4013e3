"""Sliding linear regression: a line through the last values of a key, carried on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.draws import Floats
from anabranch_bench.workloads.riotbench.observations import as_lists
from anabranch_bench.workloads.riotbench.ordered import (
    numbers,
    push,
    rounds,
    window_columns,
    window_schema,
    window_state,
)

WIDTH = 10


def carried_on(windows: Floats, horizon: int) -> Floats:
    """The next values on the least-squares line through each row of values."""
    width = windows.shape[1]
    offsets = np.arange(width) - (width - 1) / 2.0
    total, moment = np.zeros((2, len(windows)))
    # Column by column: the bits of a matrix product depend on how many rows it has.
    for offset, column in zip(offsets, windows.T, strict=True):
        total = total + column
        moment = moment + offset * column
    slope = moment / (offsets**2).sum()
    ahead = (width - 1) / 2.0 + np.arange(1, horizon + 1)
    line: Floats = (total / width)[:, None] + slope[:, None] * ahead
    return line


class SlidingRegression(ColumnarProcessor):
    """State: the last 10 values and how many there were. Rows have `id` and `value`.

    From the 11th value of a key on, rows get `horizon` predictions; those before go no further.
    """

    state_schema = pa.schema([pa.field("seen", pa.int64()), *window_schema(WIDTH)])

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon

    def process(self, batch: KeyedBatch) -> Update:
        """Rows with a list of predictions."""
        values = numbers(batch.rows.column("value"))
        window, held = window_state(batch, WIDTH)
        seen = numbers(batch.state.column("seen"), 0)
        predicted = np.full((len(values), self._horizon), np.nan)
        for keys, rows in rounds(batch):
            push(window, held, keys, values[rows])
            seen[keys] += 1
            warm = seen[keys] > WIDTH
            predicted[rows[warm]] = carried_on(window[keys[warm]], self._horizon)
        ready = ~np.isnan(predicted[:, 0])
        output = batch.rows.filter(pa.array(ready))
        return Update(
            state=pa.table({"seen": seen, **window_columns(window, held)}),
            output=output.append_column("predictions", as_lists(predicted[ready])),
            output_keys=batch.key_of_row()[ready],
        )
