"""Kalman filter: smooths the values of a key, which are taken as one number plus noise."""

from __future__ import annotations

import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.observations import replaced
from anabranch_bench.workloads.riotbench.ordered import numbers, rounds

PROCESS_NOISE = 0.125
SENSOR_NOISE = 0.32
FIRST_ERROR = 30.0


class KalmanFilter(ColumnarProcessor):
    """State: estimate and its error. Rows have `id` and `value`, which is replaced."""

    state_schema = pa.schema([("estimate", pa.float64()), ("error", pa.float64())])

    def process(self, batch: KeyedBatch) -> Update:
        """Every row, smoothed."""
        values = numbers(batch.rows.column("value"))
        estimate = numbers(batch.state.column("estimate"), 0.0)
        error = numbers(batch.state.column("error"), FIRST_ERROR)
        for keys, rows in rounds(batch):
            prior = error[keys] + PROCESS_NOISE
            gain = prior / (prior + SENSOR_NOISE)
            estimate[keys] += gain * (values[rows] - estimate[keys])
            error[keys] = (1.0 - gain) * prior
            values[rows] = estimate[keys]
        return Update(
            state=pa.table({"estimate": estimate, "error": error}),
            output=replaced(batch.rows, "value", pa.array(values)),
            output_keys=batch.key_of_row(),
        )
