"""The rows of a window with the highest value: the last step of Q5 and Q7.

The step before tells all it has of a window in one batch, when the watermark has passed the end of
the window. So all rows that compete come together, and nothing needs to be kept.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.columns import longs


class HighestOfWindow(ColumnarProcessor):
    """Keeps the rows of a key whose `column` is the greatest; all of them, if there are ties."""

    # An operator has to have a state column; no row is ever stored.
    state_schema = pa.schema([("unused", pa.bool_())])

    def __init__(self, column: str) -> None:
        self._column = column

    def process(self, batch: KeyedBatch) -> Update:
        """All rows of some windows."""
        of_row = batch.key_of_row()
        highest = batch.reduce(np.maximum, self._column)
        chosen = np.flatnonzero(longs(batch.rows.column(self._column)) == highest[of_row])
        return Update(output=batch.rows.take(chosen), output_keys=of_row[chosen])
