"""Binds an operator's plan to a running service: shuffle, lanes, ticks, initial state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.names import initial_path
from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.contract import INITIAL_ROWS, OperatorDefinition
from anabranch.spark.clock import SparkClock
from anabranch.spark.lane import LaneConfig, LaneFunction, lane_function
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.ticks import with_ticks

LANE = "__lane"
"""Column with the lane, first in its outputs until they have left its stage."""


ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
"""Off: to Spark our operators are stateless, and it would leave out lanes that get no rows."""


class Registry(Protocol):
    """The part of the coordinator that a new operator meets."""

    address: str
    token: str
    keyspace: KeySpace

    def register(self, name: str, definition: OperatorDefinition, initial: list[str]) -> int:
        """Make the operator known to the workers; raises if its stored state does not fit."""


def attach(
    coordinator: Registry,
    blobs: BlobStore,
    clock: SparkClock,
    plan: OperatorPlan,
    name: str,
    lanes: int,
    own_stage: bool,
) -> DataFrame:
    """The operator's result as an ordinary streaming DataFrame."""
    if not plan.input.isStreaming:
        raise InvalidArgument(
            f"Operator '{name}' needs a streaming DataFrame (spark.readStream...), not a static "
            "one."
        )
    plan.input.sparkSession.conf.set(ADAPTIVE, "false")
    clock.watch(name, plan)
    initial = [] if plan.initial is None else [initial_path(name, 0)]
    definition_id = coordinator.register(name, plan.definition, initial)
    if plan.initial is not None:  # kept in the location: the first batch may have to run again
        blobs.write(initial[0], encode_changelog({INITIAL_ROWS: plan.initial.toArrow()}))
    config = LaneConfig(
        coordinator.address, coordinator.token, name, definition_id, coordinator.keyspace, lanes
    )
    rows = with_ticks(plan, config)
    group = F.pmod(F.col(HASH), F.lit(coordinator.keyspace.groups))
    lane = F.pmod(group, F.lit(lanes)).cast("int")
    carried = rows.repartitionById(lanes, lane)
    if own_stage:
        # All lanes run as tasks 0..lanes-1, whatever the user does with the result (union,
        # coalesce, head); it costs a second shuffle.
        schema = StructType([StructField(LANE, IntegerType(), False), *plan.output_schema.fields])
        result = carried.mapInArrow(_numbered(lane_function(config)), schema)
        result = result.repartitionById(lanes, F.col(LANE)).drop(LANE)
    else:
        result = carried.mapInArrow(lane_function(config), plan.output_schema)
    for field in plan.output_schema.fields:
        # Spark finds event time and window columns by such marks, also ours.
        marks = dict(field.metadata)
        if field.name == plan.event_time_column and plan.watermark_delay_ms is not None:
            marks["spark.watermarkDelayMs"] = plan.watermark_delay_ms
        if marks:
            result = result.withMetadata(field.name, marks)
    return result


def _numbered(carry: LaneFunction) -> LaneFunction:
    """Outputs with their lane."""

    def run_lane(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in carry(batches):
            lane = pa.repeat(pa.scalar(context.partitionId(), pa.int32()), batch.num_rows)
            yield pa.RecordBatch.from_arrays(
                [lane, *batch.columns], names=[LANE, *batch.schema.names]
            )

    return run_lane
