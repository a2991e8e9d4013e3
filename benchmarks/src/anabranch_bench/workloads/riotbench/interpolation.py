"""Interpolation: an invalid value is replaced by the mean of the last valid ones of its key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.observations import replaced
from anabranch_bench.workloads.riotbench.ordered import (
    numbers,
    push,
    rounds,
    window_columns,
    window_schema,
    window_state,
)


class Interpolation(ColumnarProcessor):
    """Key: (sensor, field). State: the last `width` valid values. 0 if there is none yet."""

    def __init__(self, width: int) -> None:
        if width < 1:
            raise InvalidArgument(f"A window holds at least one value, not {width}.")
        self._width = width

    @property
    def state_schema(self) -> pa.Schema:
        """The window."""
        return pa.schema(window_schema(self._width))

    def describe(self) -> dict[str, Any]:
        """The window's width belongs to the state."""
        return {**super().describe(), "width": self._width}

    def process(self, batch: KeyedBatch) -> Update:
        """Every row with a value."""
        values = numbers(batch.rows.column("value"))
        window, held = window_state(batch, self._width)
        changed = np.zeros(batch.num_keys, bool)
        for keys, rows in rounds(batch):
            missing = np.isnan(values[rows])
            known, gaps = keys[~missing], keys[missing]
            push(window, held, known, values[rows[~missing]])
            changed[known] = True
            total = np.zeros(len(gaps))
            for column in window[gaps].T:  # oldest first, as a loop would add them
                total = total + column
            values[rows[missing]] = total / np.maximum(held[gaps], 1)
        return Update(
            state=pa.table(window_columns(window, held)),
            write=changed,
            output=replaced(batch.rows, "value", pa.array(values)),
            output_keys=batch.key_of_row(),
        )


class ZeroFill:
    """What is left of interpolation without a window: nulls become 0."""

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Every row with a value."""
        return replaced(rows, "value", pa.array(numbers(rows.column("value"), 0.0)))
