"""Aggregate functions and time windows for `service.group_by(df, ...).aggregate(...)`.

    service.group_by(df, "k", window=agg.tumbling("ts", "10 seconds")).aggregate(
        n=agg.count(), total=agg.sum("v"), name="perwin"
    )

Functions have the names, types and results of those in `pyspark.sql.functions`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from anabranch.errors import InvalidArgument

__all__ = [
    "Aggregate",
    "Window",
    "approx_count_distinct",
    "avg",
    "count",
    "first",
    "last",
    "max",
    "min",
    "session",
    "sliding",
    "sum",
    "tumbling",
]

ColumnOrName = Column | str

_RSD_MAX = 0.39


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function with its argument. The functions of this module make it."""

    function: str
    column: ColumnOrName | None = None
    ignore_nulls: bool = False
    rsd: float = 0.05

    def argument(self) -> Column:
        """The argument as a Column."""
        assert self.column is not None
        return F.col(self.column) if isinstance(self.column, str) else self.column

    def spark(self) -> Column:
        """The same aggregate in Spark."""
        match self.function:
            case "count":
                return F.count(F.lit(1)) if self.column is None else F.count(self.argument())
            case "first" | "last":
                function = F.first if self.function == "first" else F.last
                return function(self.argument(), ignorenulls=self.ignore_nulls)
            case "approx_count_distinct":
                return F.approx_count_distinct(self.argument(), self.rsd)
            case _:
                made: Column = getattr(F, self.function)(self.argument())
                return made


@dataclass(frozen=True)
class Window:
    """A time window to group by. `tumbling`, `sliding` and `session` make it."""

    kind: str
    column: ColumnOrName
    duration: str | Column
    slide: str | None = None
    start_time: str | None = None

    def spark(self) -> Column:
        """The same window in Spark: a column of struct<start, end>."""
        column = F.col(self.column) if isinstance(self.column, str) else self.column
        if self.kind == "session":
            return F.session_window(column, self.duration)
        assert isinstance(self.duration, str)
        return F.window(column, self.duration, self.slide, self.start_time)


def count(column: ColumnOrName | None = None) -> Aggregate:
    """Number of rows. With a column: of rows in which it is not null."""
    return Aggregate("count", None if column == "*" and isinstance(column, str) else column)


def sum(column: ColumnOrName) -> Aggregate:
    """Sum of the values that are not null."""
    return Aggregate("sum", column)


def min(column: ColumnOrName) -> Aggregate:
    """Least value."""
    return Aggregate("min", column)


def max(column: ColumnOrName) -> Aggregate:
    """Greatest value."""
    return Aggregate("max", column)


def avg(column: ColumnOrName) -> Aggregate:
    """Mean of the values that are not null."""
    return Aggregate("avg", column)


def first(column: ColumnOrName, ignore_nulls: bool = False) -> Aggregate:
    """Value of the first row. With `ignore_nulls`: the first value that is not null."""
    return Aggregate("first", column, ignore_nulls=ignore_nulls)


def last(column: ColumnOrName, ignore_nulls: bool = False) -> Aggregate:
    """Value of the last row. With `ignore_nulls`: the last value that is not null."""
    return Aggregate("last", column, ignore_nulls=ignore_nulls)


def approx_count_distinct(column: ColumnOrName, rsd: float = 0.05) -> Aggregate:
    """Estimated number of distinct values. `rsd` is the relative standard deviation."""
    if not 0 < rsd <= _RSD_MAX:
        raise InvalidArgument(
            f"The relative standard deviation must be above 0 and at most {_RSD_MAX}, not {rsd}."
        )
    return Aggregate("approx_count_distinct", column, rsd=rsd)


def tumbling(column: ColumnOrName, duration: str, start_time: str | None = None) -> Window:
    """Windows of one duration, side by side. `start_time` shifts them, as in `F.window`."""
    return Window("tumbling", column, duration, None, start_time)


def sliding(
    column: ColumnOrName, duration: str, slide: str, start_time: str | None = None
) -> Window:
    """Windows of one duration that start every `slide`."""
    return Window("sliding", column, duration, slide, start_time)


def session(column: ColumnOrName, gap: str | Column) -> Window:
    """Windows that end when no row came for `gap`, as in `F.session_window`."""
    return Window("session", column, gap)
