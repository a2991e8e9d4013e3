"""Block window average: the mean of every W values of a key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.ordered import numbers, rounds


class BlockAverage(ColumnarProcessor):
    """State: sum and count of the open block. Rows have `id` and `value`.

    Puts the mean into the column `average` of the row that completes a block. Other rows go no
    further, or, with `keep_rows`, have no average.
    """

    state_schema = pa.schema([("total", pa.float64()), ("count", pa.int64())])

    def __init__(self, width: int, keep_rows: bool = False) -> None:
        if width < 1:
            raise InvalidArgument(f"A block has at least one value, not {width}.")
        self._width = width
        self._keep_rows = keep_rows

    def describe(self) -> dict[str, Any]:
        """Another width would make nonsense of open blocks."""
        return {**super().describe(), "width": self._width}

    def process(self, batch: KeyedBatch) -> Update:
        """Rows with averages."""
        values = numbers(batch.rows.column("value"))
        total = numbers(batch.state.column("total"), 0.0)
        count = numbers(batch.state.column("count"), 0)
        average = np.full(len(values), np.nan)
        for keys, rows in rounds(batch):
            total[keys] += values[rows]
            count[keys] += 1
            full = count[keys] == self._width
            done = keys[full]
            average[rows[full]] = total[done] / self._width
            total[done], count[done] = 0.0, 0
        rows = batch.rows.append_column("average", pa.array(average, mask=np.isnan(average)))
        keys = batch.key_of_row()
        if not self._keep_rows:
            complete = ~np.isnan(average)
            rows, keys = rows.filter(pa.array(complete)), keys[complete]
        state = pa.table({"total": total, "count": count})
        return Update(state=state, output=rows, output_keys=keys)
