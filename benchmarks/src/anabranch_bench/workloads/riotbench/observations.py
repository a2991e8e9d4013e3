"""Stateless tasks as functions of Arrow batches, and how they are put on a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.draws import Floats, Ints
from anabranch_bench.workloads.riotbench.senml import parse_senml

OBSERVATION = "id long, sensor string, field string, at_ms long, meta string, value double"
"""One observed field of one message; the value is null if it is missing or not valid."""

SERIES = "id long, sensor string, field string, at_ms long, value double"
"""The same without what only travels along, and without nulls."""

DAY_MS = 86_400_000


class ObservationTask(Protocol):
    """Rows in, rows out, nothing kept. Picklable."""

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows that come out."""


def through(df: DataFrame, schema: str, *tasks: ObservationTask) -> DataFrame:
    """The tasks one after the other, in one Python process for each of Spark's partitions."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            for task in tasks:
                rows = task(rows)
            yield from rows.to_batches()

    return df.mapInArrow(run, schema)


@dataclass(frozen=True)
class ParseFields:
    """SenML parsing, one row for each observed field (1:k)."""

    dataset: Dataset

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Columns of OBSERVATION."""
        parsed = parse_senml(self.dataset, _column(rows, "message"))
        fields = self.dataset.observed
        each = np.repeat(np.arange(rows.num_rows), len(fields))
        names = pa.array(np.tile(np.arange(len(fields)), rows.num_rows))
        values = parsed.values.reshape(-1)
        return pa.table(
            {
                "id": rows.column("id").take(pa.array(each)),
                "sensor": parsed.sensor.take(pa.array(each)),
                "field": pa.array(fields).take(names),
                "at_ms": parsed.at_ms[each],
                "meta": parsed.meta.take(pa.array(each)),
                "value": pa.array(values, mask=np.isnan(values)),
            }
        )


@dataclass(frozen=True)
class ParseSeries:
    """SenML parsing for statistics: only what they need."""

    dataset: Dataset

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Columns of SERIES."""
        found = ParseFields(self.dataset)(rows).drop_columns(["meta"])
        return found.filter(pc.is_valid(found.column("value")))


@dataclass(frozen=True)
class ParseFeatures:
    """SenML parsing, one row for each message with all that a model needs (1:1)."""

    dataset: Dataset

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Columns id, sensor, at_ms and the features as a list of numbers."""
        parsed = parse_senml(self.dataset, _column(rows, "message"))
        columns = [
            parsed.values[:, self.dataset.observed.index(name)]
            if name in self.dataset.observed
            else second_of_day(parsed.at_ms)
            for name in self.dataset.features
        ]
        features = np.column_stack(columns)
        whole = ~np.isnan(features).any(axis=1)
        made = pa.table(
            {
                "id": rows.column("id"),
                "sensor": parsed.sensor,
                "at_ms": parsed.at_ms,
                "features": as_lists(features),
            }
        )
        return made.filter(pa.array(whole))


FEATURES = "id long, sensor string, at_ms long, features array<double>"


def second_of_day(at_ms: Ints) -> Floats:
    """What GRID's consumption is predicted from: it has no second sensor."""
    seconds: Floats = at_ms % DAY_MS / 1000.0
    return seconds


def as_lists(matrix: Any) -> Any:
    """A list of numbers for each row of a matrix."""
    rows, width = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(matrix.reshape(-1)))


def as_matrix(lists: Any, width: int) -> Any:
    """A row of a matrix for each list of `width` numbers."""
    numbers = pc.list_flatten(lists)
    flat = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    return flat.to_numpy(zero_copy_only=False).reshape(-1, width)


@dataclass(frozen=True)
class RangeFilter:
    """A value outside its field's valid range becomes null (1:1)."""

    dataset: Dataset

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows with fewer values."""
        ranges = self.dataset.ranges
        names = list(ranges)
        at = pc.index_in(rows.column("field"), pa.array(names, pa.string()))
        low, high = (pa.array([ranges[n][side] for n in names], pa.float64()) for side in (0, 1))
        value = rows.column("value")
        valid = pc.and_(pc.greater_equal(value, low.take(at)), pc.less_equal(value, high.take(at)))
        # Null: a field without a range, or no value anyway.
        keep = pc.fill_null(valid, True)
        return replaced(rows, "value", pc.if_else(keep, value, pa.scalar(None, pa.float64())))


def replaced(rows: pa.Table, name: str, column: Any) -> pa.Table:
    """The rows with another column in the place of one."""
    return rows.set_column(rows.column_names.index(name), name, column)


def _column(rows: pa.Table, name: str) -> Any:
    return rows.column(name).combine_chunks()
