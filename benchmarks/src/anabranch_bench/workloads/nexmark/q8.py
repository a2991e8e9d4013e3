"""Q8: who became a user and opened an auction within the same 10 seconds.

One row for each person and window, as soon as both are known (in SQL: at the end of the window).
Windows begin at multiples of 10 seconds since 1970 and do not contain their end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.service import StateService
from anabranch_bench.workloads.columns import flags, flat

WINDOW = "10 seconds"
RESULT = "id long, name string, starts timestamp"


class NewSellers(ColumnarProcessor):
    """Joins persons and sellers of a window."""

    expiry = "ends"
    state_schema = pa.schema([("name", pa.string()), ("sells", pa.bool_())])

    def process(self, batch: KeyedBatch) -> Update:
        """A person is told when the second of the two, person and auction, comes."""
        of_row = batch.key_of_row()
        is_person = flags(batch.rows.column("name").is_valid())
        came = np.flatnonzero(is_person)
        at = np.full(batch.num_keys, -1)
        at[of_row[came]] = came
        kept = flat(batch.state.column("name"))
        new = flat(batch.rows.column("name")).take(pa.array(np.maximum(at, 0), mask=at < 0))
        names = pc.coalesce(new, kept)
        sold = flags(batch.state.column("sells"))
        sells = sold.copy()
        sells[of_row[~is_person]] = True

        was_both = flags(kept.is_valid()) & sold
        is_both = flags(names.is_valid()) & sells
        told = np.flatnonzero(is_both & ~was_both)
        keys = batch.keys.take(told)
        output = pa.table(
            {
                "id": keys.column("id"),
                "name": names.take(pa.array(told)),
                "starts": keys.column("starts"),
            }
        )
        return Update(
            state=pa.table({"name": names, "sells": sells}),
            write=(at >= 0) | (sells != sold),
            output=output,
            output_keys=told,
        )


def build(service: StateService, events: DataFrame) -> DataFrame:
    """(id, name, starts)."""
    window = F.window("dateTime", WINDOW)
    rows = events.where("event_type < 2").select(
        F.coalesce("person.id", "auction.seller").alias("id"),
        window["start"].alias("starts"),
        window["end"].alias("ends"),
        F.col("person.name").alias("name"),
        "dateTime",
    )
    return service.group_by(rows, "id", "starts", "ends").process(
        NewSellers(), RESULT, name="new_sellers", event_time="dateTime"
    )
