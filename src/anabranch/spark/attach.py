"""Binds an operator's plan to a running service: shuffle, lanes, ticks, initial state."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.names import initial_path
from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.contract import INITIAL_ROWS, OperatorDefinition
from anabranch.spark.clock import SparkClock
from anabranch.spark.lane import LaneConfig, lane_function
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.ticks import with_ticks


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
) -> DataFrame:
    """The operator's result as an ordinary streaming DataFrame."""
    if not plan.input.isStreaming:
        raise InvalidArgument(
            f"Operator '{name}' needs a streaming DataFrame (spark.readStream...), not a static "
            "one."
        )
    clock.watch(name, plan)
    initial = _save_initial_state(blobs, plan, name)
    definition_id = coordinator.register(name, plan.definition, initial)
    config = LaneConfig(
        coordinator.address, coordinator.token, name, definition_id, coordinator.keyspace, lanes
    )
    rows = with_ticks(plan, config)
    group = F.pmod(F.col(HASH), F.lit(coordinator.keyspace.groups))
    lane = F.pmod(group, F.lit(lanes)).cast("int")
    result = rows.repartitionById(lanes, lane).mapInArrow(lane_function(config), plan.output_schema)
    if plan.event_time_column and plan.watermark_delay_ms is not None:
        # Operators downstream find event time by this mark, as Spark's own do.
        delay = {"spark.watermarkDelayMs": plan.watermark_delay_ms}
        result = result.withMetadata(plan.event_time_column, delay)
    return result


def _save_initial_state(blobs: BlobStore, plan: OperatorPlan, name: str) -> list[str]:
    """Keep the initial rows in the location: the first batch may have to run again."""
    if plan.initial is None:
        return []
    path = initial_path(name, 0)
    blobs.write(path, encode_changelog({INITIAL_ROWS: plan.initial.toArrow()}))
    return [path]
