"""What a workload is: a stream, a pipeline on a state service, and the answer that must come out.

A workload has four parts, and whoever runs it (`anabranch run`, the benchmarks, the tests) needs
nothing else:

`events`
    The input as a pure function of row numbers. Row i of the stream is due at `i / rate`, its
    content depends on nothing but i: not on partitions, batches, the clock or what was read before.
    So a query that starts again reads the same rows, any rate can be driven from outside, the
    latency of a row counts from the time at which it was due, and the oracle sees what Spark saw.
    Event times, where there are any, follow from the row number too.
`build`
    The pipeline: a streaming DataFrame with the columns of `events.schema` in, named streaming
    DataFrames out. All of them run in one query (`source.one_query`): an operator that stands right
    before an output of a workload with several outputs needs `own_stage=True`. Where several
    outputs come out of one operator, return what `source.tagged` makes of it instead: two
    DataFrames would run the operator twice in every batch.
`outputs`
    How the rows of each output are read. Without keys, rows are appended: all rows of all batches
    count, in no order. With keys, rows are updates: the last batch that has a key tells its value
    (an output must have at most one row for a key in each batch).
`expected`
    The oracle: the outputs after all of these events, computed in the plainest way that is not
    Anabranch (a loop, NumPy, pandas, Arrow). It must take into account what the end of a stream
    leaves open: windows and timers that the last watermark does not reach are not part of it. The
    last watermark is the greatest event time minus the delay of `withWatermark`.

Results must not depend on where batches begin and end. With event time this means that no row is
late: disorder and delays have to stay below the watermark's delay. Refuse other parameters.

A family is a group of workloads behind one word of `anabranch run` (as `nexmark`, with a query as
an option). Families are listed in `registry.py`. The smallest complete example is `keycount.py`.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from anabranch.service import StateService


class Events(Protocol):
    """A stream as a pure function of row numbers. Picklable: Spark's tasks call `between`."""

    @property
    def schema(self) -> pa.Schema:
        """Columns; timestamps as `pa.timestamp("us", "UTC")`."""

    def between(self, first: int, end: int) -> pa.RecordBatch:
        """What is sent in the places [first, end) of the stream.

        Mostly one event for each place. A stream with delayed events may leave a place empty and
        have two in another; for all cuts, the pieces together are the same events in one order.
        """


@dataclass(frozen=True, slots=True)
class Output:
    """How the rows of an output are read."""

    keys: tuple[str, ...] = ()
    """Columns that name what a row updates; empty: rows are appended."""
    tolerance: float = 0.0
    """Relative difference at which two floating-point numbers count as equal."""


class Workload(ABC):
    """A stream, a pipeline, an oracle. See the module's text for the rules."""

    name: str
    """One word or two, as in `nexmark q4`."""
    description: str
    """One line."""
    stateful: bool = True
    """Whether there is state that a rescale moves."""
    events: Events
    outputs: Mapping[str, Output]
    preload_rows: int = 0
    """Rows at the start of the stream that only fill the state: to be run through as fast as
    possible, before the load begins."""

    @abstractmethod
    def build(
        self, service: StateService, events: DataFrame
    ) -> Mapping[str, DataFrame] | DataFrame:
        """The pipeline: its outputs by name. Operators' names must be unique within the query."""

    @abstractmethod
    def expected(self, events: pa.Table) -> Mapping[str, pa.Table]:
        """The outputs after these events (all rows from 0 on), folded: for an output with keys one
        row for each key, else all rows. Columns as in the output, in any order of rows."""


class Family(ABC):
    """Workloads behind one word of `anabranch run`; made without arguments."""

    name: str
    description: str
    rate: int | None = 10_000
    """Events a second, unless `--rate` says otherwise; None: that depends on other options."""

    @abstractmethod
    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """The family's own options (`--rate`, `--workers`, ... are everybody's)."""

    @abstractmethod
    def from_options(self, options: argparse.Namespace) -> Workload:
        """The workload that the options describe.

        `options.rate` is the rate of the load; a family that has none sets it if nobody did.
        Raises InvalidArgument, with what to write instead, before anything heavy is started.
        """

    @abstractmethod
    def standard(self, rate: float) -> Sequence[Workload]:
        """Every workload of the family with its usual parameters, for tests and benchmarks."""
