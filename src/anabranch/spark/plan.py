"""What an operator's planner hands to the service: rows to shuffle and what to do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from anabranch.errors import InvalidArgument
from anabranch.processor.contract import OperatorDefinition
from anabranch.processor.sites import PlacedBy


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


def hash_of(
    keys: Sequence[Column], placed_by: PlacedBy | None = None, site: Column | None = None
) -> Column:
    """The key's hash, computed in the JVM; see model/keyspace.py. `site` is one of the keys."""
    hashed = F.xxhash64(*keys) if keys else F.lit(0).cast("long")
    if placed_by is None or site is None:
        return hashed
    space, of_site = placed_by.sites.space, F.xxhash64(site)
    number = F.lit(space.capacity) + F.pmod(of_site, F.lit(space.shared))
    if space.declared:
        # Comparisons one after the other: an array of numbers would be one of objects in the JVM.
        first, *others = (of_site == F.lit(each).cast("long") for each in space.declared)
        case = F.when(first, 0)
        for at, is_site in enumerate(others, 1):
            case = case.when(is_site, at)
        number = case.otherwise(number)
    half = F.shiftright(hashed, 1)
    start = half - F.pmod(half, F.lit(space.groups))
    return start + number * F.lit(space.width) + F.pmod(hashed, F.lit(space.width))


def check_site(placed_by: PlacedBy | None, keys: Sequence[StructField]) -> int | None:
    """Which key column has the site, if one has; raises if it cannot be used.

    A site that is no part of the key would let a key have state at two sites.
    """
    if placed_by is None:
        return None
    names = [field.name for field in keys]
    if names.count(placed_by.column) != 1:
        raise InvalidArgument(
            f"placed_by={placed_by.column!r} must name one of the columns of group_by, and there "
            f"are {', '.join(names) or 'none'}. A key whose rows come from two sites would have "
            "state at both: so the site is a part of the key."
        )
    at = names.index(placed_by.column)
    kind = keys[at].dataType
    if not isinstance(kind, StringType) or kind.collation not in ("UTF8_BINARY", None):
        raise InvalidArgument(
            f"placed_by={placed_by.column!r} must be a plain string column, and it is "
            f"{kind.simpleString()}. Cast it to a string before group_by."
        )
    return at
