"""Binds an operator's plan to a running service: shuffle, lanes, ticks, initial state."""

from __future__ import annotations

import itertools
import re
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
from anabranch.spark.clock import PlannedSide, SparkClock
from anabranch.spark.foreach_batch import watch
from anabranch.spark.lane import LaneConfig, LaneFunction, lane_function
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.ticks import with_ticks
from anabranch.transport.auth import Credentials

LANE = "__lane"
"""Column with the lane, first in its outputs until they have left its stage."""


_numbers = itertools.count()
"""Of files with initial state."""

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
"""Off: to Spark our operators are stateless, and it would leave out lanes that get no rows."""


class Registry(Protocol):
    """The part of the coordinator that a new operator meets."""

    address: str
    lane_credentials: Credentials
    keyspace: KeySpace

    def register(
        self, name: str, definition: OperatorDefinition, initial: list[str], side: PlannedSide
    ) -> int:
        """Make the operator known to the workers; raises if its stored state does not fit."""

    def has_committed(self, definition_id: int, query_id: str, epoch: int) -> bool:
        """Whether all lanes of a query's batch have ended."""


def attach(
    coordinator: Registry,
    blobs: BlobStore,
    clock: SparkClock,
    plan: OperatorPlan,
    name: str,
    lanes: int,
    own_stage: bool,
    family: str | None = None,
) -> DataFrame:
    """The operator's result as an ordinary streaming DataFrame.

    With a `family`, each query has state of its own, under a name that is made from it.
    """
    if not plan.input.isStreaming:
        raise InvalidArgument(
            f"Operator '{name}' needs a streaming DataFrame (spark.readStream...), not a static "
            "one."
        )
    plan.input.sparkSession.conf.set(ADAPTIVE, "false")
    initial = [] if plan.initial is None else [initial_path(name, next(_numbers))]
    mark = f"run_lane_{re.sub(r'[^0-9]', '', coordinator.address)}_"
    side = PlannedSide.of(clock, plan, mark, family)
    definition_id = coordinator.register(name, plan.definition, initial, side)
    if plan.initial is not None:  # kept in the location: the first batch may have to run again
        blobs.write(initial[0], encode_changelog({INITIAL_ROWS: plan.initial.toArrow()}))
    config = LaneConfig(
        coordinator.address,
        coordinator.lane_credentials,
        name,
        definition_id,
        coordinator.keyspace,
        lanes,
    )
    rows = with_ticks(plan)
    group = F.pmod(F.col(HASH), F.lit(coordinator.keyspace.groups))
    lane = F.pmod(group, F.lit(lanes)).cast("int")
    carried = rows.repartitionById(lanes, lane)
    function = f"{mark}{definition_id}"
    watch(function, name, definition_id, coordinator)
    if own_stage:
        # All lanes run as tasks 0..lanes-1, whatever the user does with the result (union,
        # coalesce, head); it costs a second shuffle.
        schema = StructType([StructField(LANE, IntegerType(), False), *plan.output_schema.fields])
        result = carried.mapInArrow(_named(_numbered(lane_function(config)), function), schema)
        result = result.repartitionById(lanes, F.col(LANE)).drop(LANE)
    else:
        result = carried.mapInArrow(_named(lane_function(config), function), plan.output_schema)
    for field in plan.output_schema.fields:
        # Spark finds event time and window columns by such marks, also ours.
        marks = dict(field.metadata)
        if field.name == plan.event_time_column and plan.watermark_delay_ms is not None:
            marks["spark.watermarkDelayMs"] = plan.watermark_delay_ms
        if marks:
            result = result.withMetadata(field.name, marks)
    return result


def _named(carry: LaneFunction, name: str) -> LaneFunction:
    """With a name that says in Spark's plans which definition it is."""
    carry.__name__ = name
    return carry


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
