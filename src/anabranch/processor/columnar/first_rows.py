"""Deduplication as a columnar processor: the first row of each key, and nothing more of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.state.columnar.values import flat, to_arrow, to_numpy

SEEN = "seen"
EXPIRES_AT = "expires_at"


class FirstRows(ColumnarProcessor):
    """Rows whose key has no state yet; of several in a batch, the first.

    With `within` (the event time's column and a delay in microseconds), a key is forgotten when the
    watermark is that long behind the first row. Else it is when the watermark reaches the key's own
    event time (`expiry`, a key column), if it has one.
    """

    def __init__(
        self,
        columns: Sequence[str],
        output_schema: pa.Schema,
        fingerprint: Sequence[str],
        expiry: str | None = None,
        within: tuple[str, int] | None = None,
    ) -> None:
        self._columns = list(columns)
        self._output_schema = output_schema
        self._fingerprint = list(fingerprint)
        self._within = within
        self.expiry = expiry if within is None else EXPIRES_AT
        field = pa.field(SEEN, pa.bool_(), nullable=False)
        if within is not None:
            field = pa.field(EXPIRES_AT, pa.timestamp("us", "UTC"), nullable=False)
        self._state_schema = pa.schema([field])

    @property
    def state_schema(self) -> pa.Schema:
        return self._state_schema

    def process(self, batch: KeyedBatch) -> Update:
        segments = batch.segments.stable()
        first = segments.order[segments.starts]
        new = np.flatnonzero(batch.is_new)
        columns = [flat(batch.rows.column(name)).take(first[new]) for name in self._columns]
        return Update(
            state=pa.Table.from_arrays([self._state(batch, first)], schema=self._state_schema),
            write=batch.is_new,
            output=pa.Table.from_arrays(columns, names=self._output_schema.names),
            output_keys=new,
        )

    def describe(self) -> dict[str, Any]:
        what = "dropDuplicates" if self._within is None else "dropDuplicatesWithinWatermark"
        return {"operation": what, "expressions": self._fingerprint}

    def _state(self, batch: KeyedBatch, first: Any) -> Any:
        if self._within is None:
            return pa.array(np.ones(batch.num_keys, bool))
        name, delay_us = self._within
        moments, valid = to_numpy(flat(batch.rows.column(name)).take(first))
        if valid is not None:  # Spark takes no event time for the beginning of 1970
            moments = np.where(valid, moments, 0)
        return to_arrow(moments.astype(np.int64) + delay_us, None, self._state_schema.field(0).type)
