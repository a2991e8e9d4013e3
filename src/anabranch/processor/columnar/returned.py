"""What a columnar processor returned, checked: its mistakes are told in its own terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import AnabranchError, ProcessorError
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.contract import CodePlace
from anabranch.processor.user_error import user_failure
from anabranch.state.columnar.values import Bools, flat


class ProcessorCalls:
    """Calls of a processor's methods, and which one is under way."""

    def __init__(self, processor: ColumnarProcessor) -> None:
        self._processor = processor
        self.place: CodePlace | None = None

    def call(self, method: str, batch: KeyedBatch) -> Returned:
        """What it returned."""
        self.place = CodePlace(f"{type(self._processor).__name__}.{method}", batch)
        try:
            return Returned(self._processor, method, batch)
        finally:
            self.place = None


class Returned:
    """The result of one call of a processor's method, for a number of keys."""

    def __init__(self, processor: ColumnarProcessor, method: str, batch: KeyedBatch) -> None:
        self._name = f"{type(processor).__name__}.{method}"
        self._num_keys = batch.num_keys
        try:
            self.value: Any = getattr(processor, method)(batch)
        except AnabranchError:
            raise
        except Exception as error:
            advice = "Fix the processor and restart the query; the batch was not applied."
            message = user_failure(f"{self._name} failed", error, advice)
            raise ProcessorError(message) from error

    def update(self) -> Update:
        """The value as the update that it has to be."""
        if not isinstance(self.value, Update):
            raise self._wrong(
                f"returned {_shown(self.value)}, not an Update. "
                "Return anabranch.Update(...); Update() changes nothing."
            )
        return self.value

    def combined(self, schema: pa.Schema) -> tuple[list[Any], npt.NDArray[np.intp] | None]:
        """The value as columns of the combined schema and the key of each of their rows."""
        if not isinstance(self.value, tuple) or len(self.value) != 2:
            raise self._wrong(
                f"returned {_shown(self.value)}, not a table and the key numbers of its rows. "
                "Return (table, key numbers), or (table, None) with one row for every key."
            )
        table, keys = self.value
        columns = self.columns("combined rows", table, schema)
        return columns, self.keys_of_rows("combined rows", keys, table.num_rows)

    def columns(self, what: str, table: Any, schema: pa.Schema) -> list[Any]:
        """The columns of a returned table that a schema names, as single arrays of its types."""
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise self._wrong(f"returned {_shown(table)} as {what}. Return a pyarrow.Table.")
        found = []
        for field in schema:
            if table.column_names.count(field.name) != 1:
                problem = "more than one" if field.name in table.column_names else "no"
                raise self._wrong(
                    f"returned {what} with {problem} column {field.name!r} (columns: "
                    f"{', '.join(table.column_names) or 'none'}). Return the columns "
                    f"{', '.join(schema.names)}."
                )
            array = flat(table.column(field.name))
            if array.type != field.type:
                try:
                    array = array.cast(field.type)
                except pa.ArrowException as error:
                    raise self._wrong(
                        f"returned {what} whose column {field.name!r} is {array.type}, which does "
                        f"not fit the declared {field.type}: {error}. Return values of the "
                        "declared type, or declare another one."
                    ) from error
            found.append(array)
        return found

    def state(self, table: Any, schema: pa.Schema) -> list[Any]:
        """State columns, one row a key."""
        columns = self.columns("state", table, schema)
        if table.num_rows != self._num_keys:
            raise self._wrong(
                f"returned state with {table.num_rows} rows for {self._num_keys} keys. Return one "
                "row for every key, in the order of batch.keys."
            )
        return columns

    def no_nulls(self, columns: list[Any], schema: pa.Schema) -> None:
        """Nulls in state columns that are to be stored are refused where the schema says so."""
        for field, column in zip(schema, columns, strict=True):
            if not field.nullable and column.null_count:
                raise self._wrong(
                    f"returned state with nulls in the column {field.name!r}, which is declared "
                    "not nullable. Fill them, or declare the column nullable."
                )

    def mask(self, what: str, given: Any) -> Bools:
        """One boolean a key."""
        found = np.asarray(given)
        if found.shape != (self._num_keys,) or found.dtype != np.bool_:
            raise self._wrong(
                f"returned {_described(found)} as {what}. Return one boolean for each of the "
                f"{self._num_keys} keys."
            )
        return found

    def keys_of_rows(self, what: str, given: Any, num_rows: int) -> npt.NDArray[np.intp] | None:
        """The key of each row of a table; None: one row for every key."""
        if given is None:
            if num_rows != self._num_keys:
                raise self._wrong(
                    f"returned {num_rows} {what} for {self._num_keys} keys and not which key each "
                    "is of. Return the key number of each row too."
                )
            return None
        found = np.asarray(given)
        if found.shape != (num_rows,) or (num_rows and found.dtype.kind not in "iu"):
            raise self._wrong(
                f"returned {_described(found)} as the key numbers of {num_rows} {what}. Return "
                "one whole number for each row."
            )
        if num_rows and not (int(found.min()) >= 0 and int(found.max()) < self._num_keys):
            raise self._wrong(
                f"returned key numbers from {found.min()} to {found.max()} for its {what}. "
                f"Return numbers from 0 to {self._num_keys - 1}: places in batch.keys."
            )
        return found.astype(np.intp, copy=False)

    def _wrong(self, problem: str) -> ProcessorError:
        return ProcessorError(f"{self._name} {problem} The batch was not applied.")


def _shown(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _described(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} values of the shape {array.shape}"
