"""ETL: parse, filter, interpolate, join and annotate messages; publish them, store their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch_bench.workloads.contract import Output, Workload
from anabranch_bench.workloads.riotbench.annotation import Annotate, ToSenml
from anabranch_bench.workloads.riotbench.bloom import BloomFilter, make_filter
from anabranch_bench.workloads.riotbench.interpolation import Interpolation, ZeroFill
from anabranch_bench.workloads.riotbench.joining import JOINED, JoinFields
from anabranch_bench.workloads.riotbench.mqtt import Address, Publish
from anabranch_bench.workloads.riotbench.observations import (
    OBSERVATION,
    ObservationTask,
    ParseFields,
    RangeFilter,
    through,
)
from anabranch_bench.workloads.riotbench.oracle.etl import expected_messages
from anabranch_bench.workloads.riotbench.streams import Messages
from anabranch_bench.workloads.riotbench.table import InsertRows, RowTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from anabranch.service import StateService


class Etl(Workload):
    """Extract, transform, load. One message out for each message in.

    `broker` is where the messages are published, `table` the file that gets the rows; both are
    optional.
    """

    def __init__(
        self, stream: Messages, broker: Address | None = None, table: str | None = None
    ) -> None:
        self.name = f"riotbench etl {stream.dataset.name}"
        self.description = "Clean, complete and annotate sensor messages"
        self.events = stream
        self.outputs: Mapping[str, Output] = {"published": Output()}
        self._stream = stream
        self._broker = broker
        self._table = table
        self._bloom = make_filter(stream.known.ids.to_pylist())

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """Two stateful operators: interpolation by (sensor, field), join by message."""
        dataset = self._stream.dataset
        checks: list[ObservationTask] = [
            ParseFields(dataset),
            RangeFilter(dataset),
            BloomFilter(self._bloom),
        ]
        if dataset.interpolation_window:
            observed = through(events, OBSERVATION, *checks)
            filled = service.group_by(observed, "sensor", "field").process(
                Interpolation(dataset.interpolation_window), OBSERVATION, name="interpolation"
            )
        else:
            filled = through(events, OBSERVATION, *checks, ZeroFill())
        joined = service.group_by(filled, "id").process(JoinFields(dataset), JOINED, name="join")
        return {"published": through(joined, "id long, message string", *self._load())}

    def _load(self) -> list[ObservationTask]:
        tasks: list[ObservationTask] = [Annotate(self._stream.known)]
        if self._table:
            tasks.append(InsertRows(RowTable(self._table), self._stream.dataset))
        tasks.append(ToSenml(self._stream.dataset))
        if self._broker:
            tasks.append(Publish(self._broker, self._stream.dataset.topic, "message"))
        return tasks

    def expected(self, events: Any) -> Mapping[str, pa.Table]:
        """The same messages from a loop."""
        width = self._stream.dataset.interpolation_window
        return {"published": expected_messages(self._stream, events, self._bloom, width)}
