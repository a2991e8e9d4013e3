"""What user code yields, as Arrow columns of the output schema."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, eq
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import Row, StructType

from anabranch.errors import ProcessorError
from anabranch.model.keyspace import GROUP
from anabranch.state.arrow_types import arrow_type


class OutputWriter(Protocol):
    """What user code yields, as columns."""

    def columns(self, outputs: list[Any]) -> list[Any]:
        """One Arrow array per output column."""

    def sizes(self, outputs: list[Any]) -> list[int] | None:
        """Rows of each output; None: one each."""


def output_table(
    writer: OutputWriter, outputs: list[Any], groups: list[tuple[int, int]], schema: pa.Schema
) -> pa.Table:
    """GROUP first: so many outputs of each key group, one group after the other."""
    columns, sizes = writer.columns(outputs), writer.sizes(outputs)
    ids = np.array([group for group, _ in groups], np.int32)
    items = np.repeat(ids, [size for _, size in groups])
    of_row = items if sizes is None else np.repeat(items, sizes)
    names = [GROUP, *schema.names]
    return pa.Table.from_arrays([pa.array(of_row), *columns], names=names)


class RowWriter:
    """Rows to Arrow: by field name, as Spark does; plain tuples by position."""

    def __init__(self, schema: StructType) -> None:
        self._names = list(schema.names)
        self._types: list[Any] = [arrow_type(field.dataType) for field in schema.fields]

    def sizes(self, rows: list[Any]) -> None:
        """An output is a row."""

    def columns(self, rows: list[Any]) -> list[Any]:
        """One Arrow array per output column."""
        if not self._uniform(rows):
            rows = [self._aligned(row) for row in rows]
        # Row's own item access is Python code: unpacking goes around it.
        columns = zip(*rows, strict=True)
        return [self._column(at, column) for at, column in enumerate(columns)]

    def _uniform(self, rows: list[Any]) -> bool:
        """Whether every row is a Row with the schema's fields in the schema's order."""
        # Fields are a list, or a tuple in rows of a row class: Row("a", "b")(1, 2).
        for names in (self._names, tuple(self._names)):
            try:
                if all(map(eq, map(attrgetter("__fields__"), rows), repeat(names))):
                    # A row class takes fewer values than it has fields, too.
                    return all(map(eq, map(len, rows), repeat(len(names))))
            except AttributeError:
                return False
        return False

    def _aligned(self, row: Any) -> Sequence[Any]:
        if isinstance(row, Row) and hasattr(row, "__fields__"):
            # As Spark, which looks names up: a missing field is null, an unknown one is dropped
            # without a word.
            fields = dict(zip(row.__fields__, row, strict=False))
            return [fields.get(name) for name in self._names]
        if not isinstance(row, tuple):
            raise ProcessorError(
                f"The processor gave {row!r} ({type(row).__name__}) where a Row is expected. "
                "Yield pyspark.sql.Row objects with the fields of outputStructType."
            )
        if len(row) != len(self._names):
            raise ProcessorError(
                f"The processor gave a row with {len(row)} values, but outputStructType has "
                f"{len(self._names)} columns ({', '.join(self._names)}). "
                "Yield one value per column."
            )
        return row

    def _column(self, at: int, values: Sequence[Any]) -> Any:
        arrow_type = self._types[at]
        try:
            if pa.types.is_nested(arrow_type):
                values = [_without_rows(value) for value in values]
            return pa.array(values, arrow_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ProcessorError(
                f"The output column {self._names[at]!r} is declared as {arrow_type}, but the "
                f"processor gave values that do not fit: {error}. "
                "Yield values of the declared type, or change outputStructType."
            ) from error


def _without_rows(value: Any) -> Any:
    """Nested Rows as dicts, so that Arrow matches their fields by name."""
    if isinstance(value, Row) and hasattr(value, "__fields__"):
        return {
            name: _without_rows(item) for name, item in zip(value.__fields__, value, strict=False)
        }
    if isinstance(value, list):
        return [_without_rows(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_rows(item) for key, item in value.items()}
    return value
