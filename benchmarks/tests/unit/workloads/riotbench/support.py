"""A columnar operator on its own: rows in, rows out, state kept between calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tests.unit.processor.columnar.support import MemoryWorker
from tests.unit.processor.rows.support import hash_keys

from anabranch.model.keyspace import HASH
from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.columnar.definition import ColumnarDefinition

INPUT = {
    "id": pa.int64(),
    "sensor": pa.string(),
    "field": pa.string(),
    "at_ms": pa.int64(),
    "meta": pa.string(),
    "value": pa.float64(),
    "predicted": pa.float64(),
    "average": pa.float64(),
    "stream": pa.string(),
}
OUTPUT = {
    **INPUT,
    "count": pa.float64(),
    "error": pa.float64(),
    "predictions": pa.list_(pa.float64()),
    "row": pa.string(),
}


class Operator:
    """Runs a processor on rows with the columns that it is told."""

    def __init__(
        self,
        processor: ColumnarProcessor,
        keys: Sequence[str],
        columns: Sequence[str],
        output: Sequence[str],
    ) -> None:
        self._keys = list(keys)
        self._schema = pa.schema([(name, INPUT[name]) for name in columns])
        self.worker = MemoryWorker(
            ColumnarDefinition(
                processor,
                key_schema=pa.schema([(name, INPUT[name]) for name in keys]),
                input_schema=self._schema,
                output_schema=pa.schema([(name, OUTPUT[name]) for name in output]),
            )
        )

    def run(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """A batch; the output rows by their ids, if they have one."""
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        hashes = hash_keys([tuple(row.values()) for row in table.select(self._keys).to_pylist()])
        output = self.worker.run(table.add_column(0, HASH, pa.array(hashes)))
        found = [tuple(row.values()) for row in output.to_pylist()]
        return sorted(found, key=lambda row: row[0])

    @property
    def entries(self) -> int:
        """Keys that have state."""
        return len(self.worker.dump())
