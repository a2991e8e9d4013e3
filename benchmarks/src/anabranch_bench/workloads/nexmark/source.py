"""NEXMark as a Spark data source.

    spark.dataSource.register(NexmarkSource)
    events = spark.readStream.format("nexmark").option("rate", 5000).load()
    bids = events.where("event_type = 2").select("bid.*", "dateTime")

Options are the parameters of `NexmarkConfig` (in any case, with `_` or without), and:

`rows`
    Where the stream ends; never, if it is not given. A batch query (`spark.read`) needs it.
`catchUpSeconds`
    How much of the stream one batch may bring, if the query has fallen behind (10).
`numPartitions`
    Tasks that make events (2).

The stream runs by the wall clock at `rate` events a second, from the moment at which the query is
started. Events depend on their number only: a query that goes on from its checkpoint gets the same
ones.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.generator import NexmarkEvents
from anabranch_bench.workloads.source import EventReader, EventStreamReader, Steady, spark_schema

_OWN_OPTIONS = {"rows": None, "catchupseconds": 10, "numpartitions": 2}


class NexmarkSource(DataSource):
    """`format("nexmark")`, for streams and for batches."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "nexmark"

    def schema(self) -> StructType:
        """The columns of events."""
        return spark_schema(self._events())

    def reader(self, schema: StructType) -> EventReader:
        """The first `rows` events of the stream."""
        rows = self._number("rows")
        if rows is None:
            raise InvalidArgument(
                'A batch query reads a stream with an end. Say where: .option("rows", 100000).'
            )
        return EventReader(self._events(), rows, self._number("numpartitions") or 1)

    def streamReader(self, schema: StructType) -> EventStreamReader:
        """The stream, by the wall clock."""
        events = self._events()
        catch_up = self._number("catchupseconds") or 1
        pace = Steady(events.config.rate, self._number("rows"), catch_up)
        return EventStreamReader(events, pace, self._number("numpartitions") or 1)

    def _events(self) -> NexmarkEvents:
        options = {n: v for n, v in self.options.items() if n.lower() not in _OWN_OPTIONS}
        return NexmarkEvents(NexmarkConfig.from_options(options))

    def _number(self, option: str) -> int | None:
        text = self.options.get(option)
        if text is None:
            return _OWN_OPTIONS[option]
        if not text.isdecimal() or int(text) < 1:
            raise InvalidArgument(f"Option {option} must be a positive number, got '{text}'.")
        return int(text)
