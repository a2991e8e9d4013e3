"""pandas DataFrames in and out, for `transformWithStateInPandas`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkValueError
from pyspark.sql.pandas.types import (
    _create_converter_from_pandas,
    _create_converter_to_pandas,
    from_arrow_type,
)

from anabranch.errors import ProcessorError
from anabranch.state.arrow_types import arrow_type

if TYPE_CHECKING:
    from anabranch.processor.rows.definition import RowInput, RowOperatorDefinition
    from anabranch.processor.rows.grouping import KeyedRows

SAFE = "convertToArrowArraySafely"
BY_NAME = "assignColumnsByName"
INTEGERS_AS_DECIMALS = "intToDecimalCoercionEnabled"

_COERCES_INTEGERS = (
    "int_to_decimal_coercion_enabled" in inspect.signature(_create_converter_from_pandas).parameters
)
"""Since PySpark 4.2."""
_KEEPS_INTEGERS = (
    "integer_object_nulls" in inspect.signature(_create_converter_to_pandas).parameters
)
"""PySpark 4.1 turns nested integers into floats where some are null."""


class FrameReader:
    """Arrow columns as the DataFrames that Spark gives to user code."""

    def __init__(self, definition: RowOperatorDefinition) -> None:
        self._timezone = definition.timezone

    def per_key(self, keyed: KeyedRows, source: RowInput, at_once: int) -> Iterator[Iterator[Any]]:
        """Per key, DataFrames with its rows, so many in each; made when asked for."""
        whole = self._frame(keyed.columns[: len(source.names)], source.names)
        # Booleans with nulls are objects; a frame without nulls gets real booleans, as in Spark.
        mixed = any(
            pa.types.is_boolean(column.type) and column.null_count for column in keyed.columns
        )
        start = 0
        for count in keyed.counts:
            yield _parts(whole.iloc[start : start + count], at_once, mixed)
            start += count

    def keys(self, keyed: KeyedRows, source: RowInput) -> list[Any]:
        """Keys with pandas' values: naive timestamps in the session's time zone."""
        starts = np.cumsum([0, *keyed.counts[:-1]])
        columns = [
            list(self._series(keyed.columns[at].take(pa.array(starts)))) for at in source.key_at
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * len(keyed.counts)

    def _frame(self, columns: list[Any], names: tuple[str, ...]) -> Any:
        series = [self._series(column) for column in columns]
        frame = pd.concat(series, axis=1, ignore_index=True) if series else pd.DataFrame()
        # Spark builds its frames from tuples, so small integers and floats come out wide.
        wide = {
            at: "int64" if str(kind).startswith("int") else "float64"
            for at, kind in enumerate(frame.dtypes)
            if str(kind) in ("int8", "int16", "int32", "float32")
        }
        frame = frame.astype(wide) if wide else frame
        frame.columns = list(names)
        return frame

    def _series(self, column: Any) -> Any:
        spark_type = from_arrow_type(column.type, prefer_timestamp_ntz=True)
        nested = pa.types.is_nested(column.type) and _KEEPS_INTEGERS
        convert: Any = _create_converter_to_pandas
        to_series = convert(
            spark_type,
            nullable=True,
            timezone=self._timezone,
            struct_in_pandas="dict",
            error_on_duplicated_field_names=True,
            **({"integer_object_nulls": True} if nested else {}),
        )
        return to_series(
            column.to_pandas(
                date_as_object=True, coerce_temporal_nanoseconds=True, integer_object_nulls=nested
            )
        )


def _parts(rows: Any, at_once: int, mixed: bool) -> Iterator[Any]:
    for start in range(0, len(rows), at_once):
        part = rows.iloc[start : start + at_once]
        part.index = pd.RangeIndex(len(part))
        yield part.infer_objects() if mixed else part


class FrameWriter:
    """DataFrames that user code yields to Arrow."""

    def __init__(self, definition: RowOperatorDefinition) -> None:
        self._schema = definition.output
        settings = dict(definition.settings)
        self._safe = settings.get(SAFE, True)
        self._by_name = settings.get(BY_NAME, True)
        takes_integers = _COERCES_INTEGERS and settings.get(INTEGERS_AS_DECIMALS, False)
        self._coercion = {"int_to_decimal_coercion_enabled": True} if takes_integers else {}
        self._timezone = definition.timezone
        self._types: list[Any] = [arrow_type(field.dataType) for field in self._schema.fields]

    def sizes(self, frames: list[Any]) -> list[int]:
        """Rows of each frame."""
        return [len(frame) for frame in frames]

    def columns(self, frames: list[Any]) -> list[Any]:
        """One Arrow array per output column, over all frames."""
        aligned = [self._aligned(frame) for frame in frames]
        whole = pd.concat(aligned, ignore_index=True) if len(aligned) > 1 else aligned[0]
        return [self._column(at, whole.iloc[:, at]) for at in range(len(self._types))]

    def _aligned(self, frame: Any) -> Any:
        if not isinstance(frame, pd.DataFrame):
            raise PySparkValueError(
                "Invalid return type. Please make sure that the UDF returns a "
                "pandas.DataFrame when the specified return type is StructType."
            )
        names = self._schema.names
        if len(frame.columns) == 0:
            return pd.DataFrame(index=frame.index, columns=names, dtype=object)
        if self._by_name and any(isinstance(name, str) for name in frame.columns):
            missing = [name for name in names if name not in frame.columns]
            if missing:
                raise ProcessorError(
                    f"The processor gave a DataFrame without the column(s) {', '.join(missing)} of "
                    "outputStructType. Name the columns as in outputStructType."
                )
            repeated = [name for name in names if list(frame.columns).count(name) > 1]
            if repeated:
                raise ProcessorError(
                    f"The processor gave a DataFrame with several columns {', '.join(repeated)}. "
                    "Give one column per field of outputStructType."
                )
            # As Spark: columns that outputStructType does not have are dropped without a word.
            return frame[names]
        if len(frame.columns) < len(names):
            raise ProcessorError(
                f"The processor gave a DataFrame with {len(frame.columns)} columns, but "
                f"outputStructType has {len(names)}. Give one column per field."
            )
        positional = frame.iloc[:, : len(names)]
        return positional.set_axis(names, axis=1)

    def _column(self, at: int, series: Any) -> Any:
        field = self._schema.fields[at]
        if isinstance(series.dtype, pd.CategoricalDtype):
            series = series.astype(series.dtype.categories.dtype)
        try:
            series = _create_converter_from_pandas(
                field.dataType,
                timezone=self._timezone,
                error_on_duplicated_field_names=False,
                **self._coercion,
            )(series)
            mask = None if hasattr(series.array, "__arrow_array__") else series.isnull()
            try:
                return pa.Array.from_pandas(
                    series, mask=mask, type=self._types[at], safe=self._safe
                )
            except pa.ArrowInvalid:
                return pa.Array.from_pandas(series, mask=mask).cast(
                    self._types[at], safe=self._safe
                )
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ProcessorError(
                f"The output column {field.name!r} is declared as {self._types[at]}, but the "
                f"processor gave values of type {series.dtype} that do not fit: {error}. "
                "Give values of the declared type, or change outputStructType."
            ) from error
