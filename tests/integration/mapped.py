"""A processor with one large map, for tests of lookups: what it has is known by heart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from tests.unit.processor.rows.support import define

from anabranch.model.keyspace import HASH
from anabranch.state.hashing import hash_rows

STEP = 1000
"""Each batch changes every so many-th entry, and adds one."""


class Mapped(StatefulProcessor):
    """The first row of a key makes its map."""

    def init(self, handle: Any) -> None:
        self.entries = handle.getMapState("entries", "u long", "batch long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            batch, size = row["batch"], row["size"]
            at = range(size) if batch == 0 else [*range(batch, size, STEP), size + batch]
            for number in at:
                self.entries.updateValue((number,), (batch,))
        yield Row(k=key[0], batch=batch)

    def close(self) -> None:
        pass


DEFINITION = define(Mapped(), "k long, batch long, size long", ["k"], "k long, batch long")


def expected(epoch: int, size: int) -> dict[int, int]:
    """The map of a key as of an epoch."""
    found = dict.fromkeys(range(size), 0)
    for batch in range(1, epoch + 1):
        found.update(dict.fromkeys([*range(batch, size, STEP), size + batch], batch))
    return found


def rows_of(batch: int, sizes: dict[int, int]) -> pa.RecordBatch:
    """One row for each key, with the size that its map begins with; hashed as Spark does."""
    keys = pa.array(list(sizes), pa.int64())
    return pa.record_batch(
        {
            HASH: pa.array(hash_rows([keys], len(keys))),
            "k": keys,
            "batch": pa.array(np.full(len(keys), batch, np.int64)),
            "size": pa.array(list(sizes.values()), pa.int64()),
        }
    )
