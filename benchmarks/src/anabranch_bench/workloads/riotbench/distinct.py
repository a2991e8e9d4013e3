"""Distinct count: how many senders there have been, by a HyperLogLog of Apache DataSketches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.ordered import rounds

BITS = 10
"""1024 registers; the error to expect of HyperLogLog is 1.04 / sqrt(1024), about 3.3 %."""


def new_sketch() -> Any:
    """An empty sketch with a byte for each register."""
    from datasketches import hll_sketch, tgt_hll_type

    return hll_sketch(BITS, tgt_hll_type.HLL_8)


def open_sketch(saved: bytes | None) -> Any:
    """A sketch from its bytes, or an empty one."""
    from datasketches import hll_sketch

    return new_sketch() if saved is None else hll_sketch.deserialize(saved)


class DistinctApproxCount(ColumnarProcessor):
    """State: a sketch. Rows have `id` and `sensor`; each gets the estimate after it as `count`."""

    state_schema = pa.schema([("sketch", pa.binary())])

    def process(self, batch: KeyedBatch) -> Update:
        """Every row with an estimate."""
        sketches = [open_sketch(saved) for saved in batch.state.column("sketch").to_pylist()]
        sensors = batch.rows.column("sensor").to_pylist()
        counts = np.empty(len(sensors))
        for keys, rows in rounds(batch):
            for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
                sketches[key].update(sensors[row])
                counts[row] = sketches[key].get_estimate()
        saved = pa.array([s.serialize_updatable() for s in sketches], pa.binary())
        return Update(
            state=pa.table({"sketch": saved}),
            output=batch.rows.append_column("count", pa.array(counts)),
            output_keys=batch.key_of_row(),
        )
