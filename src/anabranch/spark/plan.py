"""What an operator's planner hands to the service: rows to shuffle and what to do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.processor.contract import OperatorDefinition


@dataclass(frozen=True)
class OperatorPlan:
    """A stateful operator before it is bound to a service."""

    input: DataFrame
    """HASH (long) first, then the columns that the definition's engine expects."""
    definition: OperatorDefinition
    output_schema: StructType
    time_mode: str = "none"
    """"none", "processingtime" or "eventtime": whether batches must run without new rows."""
    reads_clock: bool = True
    """Whether the engine looks at the batch's times at all; asking Spark costs milliseconds."""
    initial: DataFrame | None = None
    """Static rows, HASH first, for the operator's first epoch."""
    event_time_column: str | None = None
    """Output column that carries event time downstream (marked with the watermark delay)."""
    watermark_delay_ms: int | None = None


def hash_of(keys: Sequence[Column]) -> Column:
    """The key's hash, computed in the JVM; see model/keyspace.py."""
    return F.xxhash64(*keys) if keys else F.lit(0).cast("long")
