"""Error estimation: how far a prediction was off, in units of the sender's last average."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.ordered import numbers, rounds


class ErrorEstimate(ColumnarProcessor):
    """State: the last average of a sender. Rows have `id`, `value`, `predicted`, `average`.

    (actual - predicted) / average becomes the column `error`; null before the first average.
    """

    state_schema = pa.schema([("last", pa.float64())])

    def process(self, batch: KeyedBatch) -> Update:
        """Every row with an error."""
        off = numbers(batch.rows.column("value")) - numbers(batch.rows.column("predicted"))
        average = numbers(batch.rows.column("average"))
        last = numbers(batch.state.column("last"))
        before = last.copy()
        error = np.full(len(off), np.nan)
        for keys, rows in rounds(batch):
            given = ~np.isnan(average[rows])
            last[keys[given]] = average[rows[given]]
            known = last[keys]
            usable = known != 0.0  # NaN: no average yet
            error[rows[usable]] = off[rows[usable]] / known[usable]
        output = batch.rows.append_column("error", pa.array(error, mask=np.isnan(error)))
        return Update(
            state=pa.table({"last": pa.array(last, mask=np.isnan(last))}),
            write=(last != before) & ~np.isnan(last),
            output=output,
            output_keys=batch.key_of_row(),
        )
