"""Join: the observed fields of a message, which came apart, become one CSV row again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.datasets import TIMESTAMP, Dataset
from anabranch_bench.workloads.riotbench.ordered import numbers
from anabranch_bench.workloads.riotbench.senml import META_SEPARATOR, split_row

JOINED = "id long, sensor string, row string"


class JoinFields(ColumnarProcessor):
    """Key: message. State: the fields that have come, until all have."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    @property
    def state_schema(self) -> pa.Schema:
        """What all fields share, and a column for each field."""
        shared = [
            pa.field("sensor_", pa.string()),
            pa.field("meta_", pa.string()),
            pa.field("at_ms_", pa.int64()),
        ]
        return pa.schema([*shared, *(pa.field(n, pa.float64()) for n in self._dataset.observed)])

    def process(self, batch: KeyedBatch) -> Update:
        """A CSV row for each message that is complete."""
        fields = self._dataset.observed
        keys = batch.key_of_row()
        values = np.column_stack([numbers(batch.state.column(name)) for name in fields])
        field = pc.index_in(batch.rows.column("field"), pa.array(fields))
        values[keys, numbers(field)] = numbers(batch.rows.column("value"))
        any_row = pa.array(batch.segments.order[batch.segments.starts])
        shared = {
            f"{name}_": batch.rows.column(name).take(any_row)
            for name in ("sensor", "meta", "at_ms")
        }
        complete = ~np.isnan(values).any(axis=1)
        state = {**shared, **_columns(fields, values)}
        done = pa.array(complete)
        output = pa.table(
            {
                "id": batch.keys.column("id").filter(done),
                "sensor": shared["sensor_"].filter(done),
                "row": self._rows({k: _flat(v).filter(done) for k, v in state.items()}),
            }
        )
        return Update(
            state=pa.table(state),
            write=~complete,
            drop=complete & ~batch.is_new,
            output=output,
            output_keys=np.flatnonzero(complete),
        )

    def _rows(self, columns: dict[str, Any]) -> Any:
        """CSV in the order of the data set."""
        meta = split_row(columns["meta_"], self._dataset.meta)
        meta[TIMESTAMP] = columns["at_ms_"].cast(pa.string())
        cells = [
            meta[name] if name in meta else columns[name].cast(pa.string())
            for name in self._dataset.columns
        ]
        return pc.binary_join_element_wise(*cells, META_SEPARATOR)


def _columns(names: tuple[str, ...], matrix: Any) -> dict[str, Any]:
    """A column of numbers for each name; NaN becomes null."""
    return {
        name: pa.array(matrix[:, i], mask=np.isnan(matrix[:, i])) for i, name in enumerate(names)
    }


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
