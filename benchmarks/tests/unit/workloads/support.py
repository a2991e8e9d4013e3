"""Columnar operators of workloads without Spark, and a watermark that moves as Spark's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.model.keyspace import HASH
from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch_bench.workloads.chance import mixed

TIME = pa.timestamp("us", "UTC")
START_MS = 1_000_000
"""Far from 0: a row at the watermark is late, and watermarks begin there."""


class Operator:
    """One operator; rows are dictionaries, times in milliseconds."""

    def __init__(
        self,
        processor: ColumnarProcessor,
        keys: list[str],
        columns: dict[str, Any],
        output: dict[str, Any],
        late: str | None = None,
    ) -> None:
        self._schema = pa.schema(list(columns.items()))
        self._keys = keys
        definition = ColumnarDefinition(
            processor=processor,
            key_schema=pa.schema([(k, columns[k]) for k in keys]),
            input_schema=self._schema,
            output_schema=pa.schema(list(output.items())),
            late=late,
        )
        self.worker = MemoryWorker(definition)

    def run(self, rows: list[dict[str, Any]], watermark_ms: int = 0, late_ms: int = 0) -> Any:
        """A batch; its output rows."""
        table = pa.Table.from_pylist(rows, self._plain()).cast(self._schema)
        hashes = np.zeros(len(rows), np.uint64)
        for key in self._keys:
            values = table.column(key).cast(pa.int64()).to_numpy().astype(np.uint64)
            hashes = mixed(hashes * np.uint64(31) + values)
        hashed = table.add_column(0, HASH, pa.array(hashes.view(np.int64)))
        return self.worker.run(hashed, watermark_ms, late_ms).to_pylist()

    @property
    def entries(self) -> int:
        """Keys that have state."""
        return len(self.worker.dump())

    def _plain(self) -> pa.Schema:
        """Times as microseconds, which tests can write as numbers."""
        return pa.schema(
            [
                (f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type)
                for f in self._schema
            ]
        )


class Watermark:
    """Spark's: the newest time of the batches before, minus a delay."""

    def __init__(self, delay_ms: int) -> None:
        self._delay = delay_ms
        self._newest = 0
        self.now = self.before = 0

    def batch(self, times_ms: list[int]) -> tuple[int, int]:
        """Watermarks for a batch with these times: to close with, and of the batch before."""
        self.before, self.now = self.now, max(self.now, self._newest - self._delay)
        self._newest = max([self._newest, *times_ms])
        return self.now, self.before
