"""Q3: who sells things of category 10 in Oregon, Idaho or California, and which.

A join of persons and auctions without an end in time: whichever side comes first is kept for the
other. A person's auctions wait only until the person comes; of persons elsewhere no more is kept
than that they are elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.service import StateService
from anabranch_bench.workloads.columns import elements, flags, grouped, longs, owners

CATEGORY = 10
STATES = ("OR", "ID", "CA")
RESULT = "name string, city string, state string, auction long"


class LocalItems(ColumnarProcessor):
    """Joins auctions with their sellers."""

    state_schema = pa.schema(
        [
            ("known", pa.bool_()),
            ("name", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("waiting", pa.list_(pa.int64())),
        ]
    )

    def process(self, batch: KeyedBatch) -> Update:
        """Persons first, then all auctions that have one."""
        count, of_row = batch.num_keys, batch.key_of_row()
        came = np.flatnonzero(batch.rows.column("is_person").to_numpy())
        known = flags(batch.state.column("known"))
        known[of_row[came]] = True
        persons = {n: _placed(batch, n, of_row, came) for n in ("name", "city", "state")}

        sold = np.flatnonzero(batch.rows.column("auction").is_valid().to_numpy())
        waiting = batch.state.column("waiting")
        auctions = np.concatenate(
            (longs(batch.rows.column("auction").take(sold)), longs(elements(waiting)))
        )
        seller = np.concatenate((of_row[sold], owners(waiting)))
        is_local = np.asarray(persons["state"].is_valid())
        joined, open_ = is_local[seller], ~known[seller]
        write = np.zeros(count, bool)
        write[of_row[came]] = write[seller[open_]] = True
        at = seller[joined]
        return Update(
            state=pa.table(
                {
                    "known": known,
                    **persons,
                    "waiting": grouped(seller[open_], pa.array(auctions[open_]), count),
                }
            ),
            write=write,
            output=pa.table(
                {n: values.take(pa.array(at)) for n, values in persons.items()}
                | {"auction": auctions[joined]}
            ),
            output_keys=at,
        )


def _placed(batch: KeyedBatch, column: str, of_row: Any, came: Any) -> Any:
    """What the state has, or what this batch brings."""
    at = np.full(batch.num_keys, -1)
    at[of_row[came]] = came
    index = pa.array(np.maximum(at, 0), mask=at < 0)
    new = batch.rows.column(column).combine_chunks().take(index)
    return pc.coalesce(new, batch.state.column(column).combine_chunks())


def build(service: StateService, events: DataFrame) -> DataFrame:
    """(name, city, state, auction), one row for each auction."""
    wanted = events.where(f"event_type = 0 or auction.category = {CATEGORY}")
    is_local = F.col("person.state").isin(*STATES)
    rows = wanted.select(
        F.coalesce("person.id", "auction.seller").alias("seller"),
        (F.col("event_type") == 0).alias("is_person"),
        *(F.when(is_local, F.col(f"person.{n}")).alias(n) for n in ("name", "city", "state")),
        F.col("auction.id").alias("auction"),
    )
    return service.group_by(rows, "seller").process(LocalItems(), RESULT, name="local_items")
