"""Arrow columns as the Rows that Spark gives to user code."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from pyspark.sql.types import Row

_SLICE = 65_536
"""Rows turned into Python objects at a time."""


def make_rows(columns: Sequence[Any], names: Sequence[str], size: int) -> Iterator[Row]:
    """Rows one after the other, made when asked for."""
    kind = row_type(names)

    def rows_from(start: int) -> Iterator[Row]:
        lists = [column.slice(start, _SLICE).to_pylist() for column in columns]
        return map(tuple.__new__, repeat(kind), zip(*lists, strict=True))

    return chain.from_iterable(map(rows_from, range(0, size, _SLICE)))


def row_type(names: Sequence[str]) -> Any:
    """A Row class for one schema: the names are in the class, so that a row is just its values."""
    members: dict[str, Any] = {"__fields__": list(names), "__module__": Row.__module__}
    for at, name in enumerate(names):
        # Row finds fields after its own attributes, and the first of equal names.
        if not hasattr(Row, name):
            members.setdefault(name, _getter(at))
    return type("Row", (Row,), members)


def _getter(at: int) -> Any:
    """What namedtuple uses: field access without a Python call."""
    make: Callable[[int, str], Any] | None = getattr(collections, "_tuplegetter", None)
    return make(at, "") if make else property(lambda row: tuple.__getitem__(row, at))
