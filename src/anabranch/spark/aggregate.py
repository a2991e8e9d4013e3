"""Plans for grouped aggregation: Spark's expressions before the shuffle, Spark's types after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, StructField, StructType

from anabranch.agg import Aggregate, Window
from anabranch.errors import InvalidArgument
from anabranch.processor.columnar.aggregates import (
    WINDOW_END,
    WINDOW_START,
    AggregateProcessor,
    Measure,
)
from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.columnar.decimals import DecimalAverage, DecimalSum
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.hll import Correction, DistinctCount, precision_of
from anabranch.processor.columnar.kernels import Average, Count, Kernel, Sum
from anabranch.processor.columnar.selection import Extreme, Nth
from anabranch.processor.columnar.sessions import SESSION_END, SESSION_START, SessionProcessor
from anabranch.processor.sites import PlacedBy
from anabranch.spark.columnar import (
    WATERMARK_DELAY,
    arrow_schema,
    as_column,
    check_names,
    quoted,
    with_hash,
)
from anabranch.spark.plan import OperatorPlan, check_site
from anabranch.state.columnar.layout import nullable

_WINDOW = "__window"
_OUTPUT_WINDOW = "window"


def plan_aggregate(
    df: DataFrame,
    keys: Sequence[Column | str],
    window: Window | None,
    aggregates: Mapping[str, Aggregate],
    output_mode: str = "update",
    placed_by: PlacedBy | None = None,
) -> OperatorPlan:
    """`df` grouped by keys and a time window, aggregated; see `anabranch.agg`."""
    output_mode = str(output_mode).lower()
    _check(aggregates, output_mode)
    columns = [as_column(key) for key in keys]
    windows = [] if window is None else [window.spark()]
    # Spark's own aggregation is never run: it says the names, types and nullability of the result.
    reference = df.groupBy(*columns, *windows).agg(
        *(aggregate.spark().alias(name) for name, aggregate in aggregates.items())
    )
    schema = _renamed(reference.schema, len(columns), window)
    check_names(schema.names)
    names = schema.names[: len(columns)]
    check_site(placed_by, schema.fields[: len(columns)])
    rows, inputs = _inputs(df, columns, names, windows, aggregates)
    delay, closing = _event_time(schema, rows, len(columns), window)
    _check_mode(output_mode, closing)
    measures = [
        Measure(name, _kernel(df, aggregate, rows, column, schema[name].dataType), column)
        for (name, aggregate), column in zip(aggregates.items(), inputs, strict=True)
    ]
    rows, key_names = _cut_window(rows, names, window)
    output = nullable(arrow_schema(schema))
    append = output_mode == "append"
    processor: ColumnarProcessor
    if window is not None and window.kind == "session":
        processor = SessionProcessor(measures, output, append=append, expires=closing is not None)
    else:
        processor = AggregateProcessor(
            measures, output, windowed=window is not None, append=append, expiry=closing
        )
    arrow = arrow_schema(rows.schema)
    definition = ColumnarDefinition(
        processor=processor,
        key_schema=pa.schema([arrow.field(name) for name in key_names]),
        input_schema=arrow,
        output_schema=output,
        late=closing,
        placed_by=placed_by,
    )
    return OperatorPlan(
        input=with_hash(rows, key_names, placed_by),
        definition=definition,
        output_schema=schema,
        time_mode="none" if closing is None else "eventtime",
        reads_clock=closing is not None,
        event_time_column=_time_column(schema, delay, window, closing),
        watermark_delay_ms=delay,
    )


def _check(aggregates: Mapping[str, Aggregate], output_mode: str) -> None:
    if not aggregates:
        raise InvalidArgument("Nothing to aggregate. Give at least one, such as n=agg.count().")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise InvalidArgument(
                f"{name} is not an aggregate but {type(aggregate).__name__}. Use a function of "
                "anabranch.agg, such as agg.sum(...)."
            )
    if output_mode not in ("update", "append"):
        raise InvalidArgument(
            f"Output mode {output_mode!r} is not supported here: use 'update' or 'append'."
        )


def _check_mode(output_mode: str, closing: str | None) -> None:
    if output_mode == "append" and closing is None:
        raise AnalysisException(
            message="[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: "
            "append. This output mode is not supported for streaming aggregations without "
            "watermark on streaming DataFrames/DataSets. Call withWatermark on the event-time "
            "column and group by a window on it."
        )


def _renamed(schema: StructType, keys: int, window: Window | None) -> StructType:
    """The result's columns; every kind of window has the same name."""
    fields = list(schema.fields)
    if window is not None:
        old = fields[keys]
        fields[keys] = StructField(_OUTPUT_WINDOW, old.dataType, old.nullable, old.metadata)
    return StructType(fields)


def _inputs(
    df: DataFrame,
    keys: Sequence[Column],
    names: Sequence[str],
    windows: Sequence[Column],
    aggregates: Mapping[str, Aggregate],
) -> tuple[DataFrame, list[str | None]]:
    """Keys, window and what the kernels read, computed in the JVM; and each aggregate's column."""
    selected = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    selected += [window.alias(_WINDOW) for window in windows]
    inputs: list[str | None] = []
    for i, aggregate in enumerate(aggregates.values()):
        if aggregate.column is None:
            inputs.append(None)
            continue
        inputs.append(f"__in{i}")
        selected.append(_input(df, aggregate).alias(f"__in{i}"))
    return df.select(*selected), inputs


def _input(df: DataFrame, aggregate: Aggregate) -> Column:
    column = aggregate.argument()
    match aggregate.function:
        case "count":
            return column.isNotNull()
        case "approx_count_distinct":
            return F.when(column.isNotNull(), F.xxhash64(column))
        case "sum":
            return column.cast(df.agg(F.sum(column).alias("r")).schema["r"].dataType)
        case "avg":
            return column.cast(_sum_type(df, column))
        case _:
            return column


def _sum_type(df: DataFrame, column: Column) -> DataType:
    """What Spark's avg adds up: decimals with ten more digits, intervals, otherwise doubles."""
    given = df.select(column.alias("r")).schema["r"].dataType
    if isinstance(given, DecimalType):
        return df.agg(F.sum(column).alias("r")).schema["r"].dataType
    result = df.agg(F.avg(column).alias("r")).schema["r"].dataType
    return DoubleType() if isinstance(result, DoubleType) else result


def _kernel(
    df: DataFrame, aggregate: Aggregate, rows: DataFrame, column: str | None, result: DataType
) -> Kernel:
    if aggregate.function == "count" or column is None:
        return Count()
    kind = arrow_schema(StructType([rows.schema[column]])).field(0).type
    ansi = str(df.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
    match aggregate.function:
        case "sum":
            return DecimalSum(kind, ansi) if pa.types.is_decimal(kind) else Sum(kind, ansi)
        case "avg" if pa.types.is_decimal(kind):
            result_kind = arrow_schema(StructType([StructField("r", result)])).field(0).type
            return DecimalAverage(kind, result_kind, ansi)
        case "avg":
            return Average(kind)
        case "min" | "max":
            return Extreme(kind, greatest=aggregate.function == "max")
        case "first" | "last":
            return Nth(kind, aggregate.function == "last", aggregate.ignore_nulls)
        case "approx_count_distinct":
            precision = precision_of(aggregate.rsd)
            return DistinctCount(precision, _correction(df, precision))
        case unknown:
            raise InvalidArgument(f"Aggregate function {unknown!r} is not known.")


def _correction(df: DataFrame, precision: int) -> Correction:
    """Spark's HyperLogLog++ tables, read from the JVM: the estimates are the same, to the digit."""
    jvm: Any = getattr(df.sparkSession, "_jvm", None)
    if jvm is None or not 4 <= precision <= 18:
        return Correction()
    helper = jvm.org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper
    row = precision - 4
    return Correction(
        estimates=tuple(helper.RAW_ESTIMATE_DATA()[row]),
        biases=tuple(helper.BIAS_DATA()[row]),
        threshold=float(helper.THRESHOLDS()[row]),
    )


def _event_time(
    schema: StructType, rows: DataFrame, keys: int, window: Window | None
) -> tuple[int | None, str | None]:
    """Watermark delay, and the input column on which groups close, if there is a watermark."""
    if window is not None:
        delay = schema.fields[keys].metadata.get(WATERMARK_DELAY)
        if delay is not None:
            return int(delay), SESSION_END if window.kind == "session" else WINDOW_END
    for field in schema.fields[:keys]:
        delay = field.metadata.get(WATERMARK_DELAY)
        if delay is not None:
            return int(delay), field.name
    return None, None


def _time_column(
    schema: StructType, delay: int | None, window: Window | None, closing: str | None
) -> str | None:
    if delay is None:
        return None
    return closing if closing in schema.names else _OUTPUT_WINDOW


def _cut_window(
    rows: DataFrame, names: Sequence[str], window: Window | None
) -> tuple[DataFrame, list[str]]:
    """Start and end of the window as columns: key columns, except in sessions."""
    if window is None:
        return rows, list(names)
    session = window.kind == "session"
    start, end = (SESSION_START, SESSION_END) if session else (WINDOW_START, WINDOW_END)
    parts = [F.col(f"{_WINDOW}.start").alias(start), F.col(f"{_WINDOW}.end").alias(end)]
    rest = [quoted(name) for name in rows.columns if name not in (*names, _WINDOW)]
    cut = rows.select(*map(quoted, names), *parts, *rest)
    return cut, list(names) if session else [*names, start, end]
