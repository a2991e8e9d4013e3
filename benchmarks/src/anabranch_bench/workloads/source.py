"""Events as a Spark source: rows by number, as far as a schedule allows, also after a restart."""

from __future__ import annotations

import inspect
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from anabranch.errors import InvalidArgument
from anabranch.loadtest.quiet_source import be_quiet_at_the_end
from anabranch_bench.workloads.contract import Events

OUTPUT = "output"
"""Column that tells the outputs of a query apart, if there are several."""

_SLICE_ROWS = 32_768
_numbers = itertools.count(1)


class EmissionSchedule(Protocol):
    """How far a stream may be read. Picklable; asked once for each batch, by one reader."""

    def end_of_batch(self, start: int, now: float) -> int:
        """One past the last row of a batch that begins now (seconds since the epoch) at `start`."""


@dataclass
class Steady:
    """Rows at a steady rate by the wall clock, from the first batch of this run on.

    What a stopped query has missed is not made up for. A slow one gets what was due in the
    meantime, at most `catch_up_seconds` of the stream in one batch.
    """

    rate: float
    rows: int | None = None
    """Where the stream ends; None: never."""
    catch_up_seconds: float = 10.0
    _origin: tuple[int, float] | None = field(default=None, init=False)

    def end_of_batch(self, start: int, now: float) -> int:
        """All rows whose time has come, within the limits."""
        if self._origin is None:
            self._origin = (start, now)
        first, began = self._origin
        due = first + math.floor((now - began) * self.rate) + 1
        end = min(due, start + max(1, math.floor(self.rate * self.catch_up_seconds)))
        return max(start, end if self.rows is None else min(end, self.rows))


class RowRange(InputPartition):
    """Rows [first, end) of a stream."""

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end


def cut(first: int, end: int, parts: int) -> list[RowRange]:
    """At most `parts` pieces that cover [first, end)."""
    size = max(1, -(-(end - first) // parts))
    return [RowRange(at, min(at + size, end)) for at in range(first, end, size)]


def read_places(events: Events, places: RowRange) -> Iterator[Any]:
    """Record batches of a bounded size."""
    for at in range(places.first, places.end, _SLICE_ROWS):
        yield events.between(at, min(at + _SLICE_ROWS, places.end))


class EventStreamReader(DataSourceStreamReader):
    """Streams events. Offsets are row numbers."""

    def __init__(self, events: Events, schedule: EmissionSchedule, parts: int) -> None:
        if "start" not in inspect.signature(DataSourceStreamReader.latestOffset).parameters:
            raise InvalidArgument(
                "Workloads need PySpark 4.2 or newer: the sources of older ones do not learn "
                "where a query continues."
            )
        self._events = events
        self._schedule = schedule
        self._parts = parts

    def initialOffset(self) -> dict[str, int]:
        """Before the first row."""
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """As far as the schedule allows."""
        be_quiet_at_the_end()
        return {"row": self._schedule.end_of_batch(start["row"], time.time())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Neighbouring pieces of the batch."""
        return list(cut(start["row"], end["row"], self._parts))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task."""
        assert isinstance(partition, RowRange)
        return read_places(self._events, partition)


class EventReader(DataSourceReader):
    """Events of a bounded stream, for batch queries."""

    def __init__(self, events: Events, rows: int, parts: int) -> None:
        self._events = events
        self._rows = rows
        self._parts = parts

    def partitions(self) -> list[InputPartition]:
        """Neighbouring pieces."""
        return list(cut(0, self._rows, self._parts)) or [RowRange(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task."""
        assert isinstance(partition, RowRange)
        return read_places(self._events, partition)


def spark_schema(events: Events) -> StructType:
    """The columns of a stream, for Spark."""
    return from_arrow_schema(events.schema)


def event_stream(spark: SparkSession, events: Events, schedule: EmissionSchedule) -> DataFrame:
    """A streaming DataFrame of events that is read as far as `schedule` allows."""
    # Spark looks a source up again when a query starts: each needs a name of its own.
    source = f"anabranch_events_{next(_numbers)}"
    parts = spark.sparkContext.defaultParallelism

    class Stream(DataSource):
        """Carries events and schedule in its closure."""

        @classmethod
        def name(cls) -> str:
            return source

        def schema(self) -> StructType:
            return spark_schema(events)

        def streamReader(self, schema: StructType) -> EventStreamReader:
            return EventStreamReader(events, schedule, parts)

    spark.dataSource.register(Stream)
    return spark.readStream.format(source).load()


def one_query(outputs: Mapping[str, DataFrame] | DataFrame) -> DataFrame:
    """All outputs as one streaming DataFrame.

    A single output stays as it is. Several become rows with the name of their output and one
    struct column for each output, null except in its own rows. What `tagged` made is that already.
    """
    if isinstance(outputs, DataFrame):
        return outputs
    if not outputs:
        raise InvalidArgument("A workload needs at least one output.")
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    kinds = {name: df.schema for name, df in outputs.items()}
    union: DataFrame | None = None
    for name, df in outputs.items():
        cells = [
            F.struct(*(F.col(f"`{c}`") for c in df.columns)).alias(other)
            if other == name
            else F.lit(None).cast(kind).alias(other)
            for other, kind in kinds.items()
        ]
        rows = df.select(F.lit(name).alias(OUTPUT), *cells)
        union = rows if union is None else union.union(rows)
    assert union is not None
    return union


def tagged(df: DataFrame, outputs: Mapping[str, tuple[str, Sequence[str]]]) -> DataFrame:
    """Several outputs that come out of one operator: by name, which rows and which columns.

    With a DataFrame for each of them Spark would run the operator as often as there are outputs.
    """
    name, structs = F.lit(None).cast("string"), []
    for output, (condition, columns) in outputs.items():
        mine = F.expr(condition)
        name = F.when(mine, F.lit(output)).otherwise(name)
        structs.append(F.when(mine, F.struct(*columns)).alias(output))
    return df.select(name.alias(OUTPUT), *structs)
