"""Plans `transformWithState`: checks everything in the driver, so that workers need no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from anabranch.errors import InvalidArgument, ProcessorError
from anabranch.model.keyspace import HASH
from anabranch.processor.rows.definition import RowInput, RowOperatorDefinition
from anabranch.processor.rows.frame_limits import LIMITS
from anabranch.processor.rows.frames import BY_NAME, INTEGERS_AS_DECIMALS, SAFE
from anabranch.processor.rows.handle import RecordingHandle
from anabranch.processor.sites import PlacedBy
from anabranch.processor.tally import Tally, counting
from anabranch.processor.user_code import loads
from anabranch.processor.user_error import user_failure
from anabranch.spark.plan import OperatorPlan, check_site, hash_of

WATERMARK_DELAY = "spark.watermarkDelayMs"

InitialState = GroupedData | tuple[DataFrame, Sequence[Column | str]]

_CONVERSIONS = {
    SAFE: "spark.sql.execution.pandas.convertToArrowArraySafely",
    BY_NAME: "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName",
}
_COERCION = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
"""Not known to every release: unset, it is off."""


@dataclass(frozen=True)
class _Keyed:
    """A DataFrame with its key columns in it: computed ones were added at the end."""

    frame: DataFrame
    """The user's columns, then computed key columns."""
    names: tuple[str, ...]
    """The user's columns."""
    key_at: tuple[int, ...]
    key_fields: tuple[StructField, ...]

    @property
    def keys(self) -> list[Column]:
        """The key columns by position, since names may repeat."""
        output = self.frame._jdf.queryExecution().analyzed().output()
        return [_column_of(self.frame, output.apply(at)) for at in self.key_at]


def grouping_of(grouped_data: GroupedData) -> tuple[DataFrame, list[Column]]:
    """The DataFrame behind a `groupBy`, and its grouping expressions."""
    if not hasattr(grouped_data, "_jgd"):
        _refuse_connect(grouped_data)
        raise PySparkTypeError(
            f"[NOT_GROUPED_DATA] Expected the result of DataFrame.groupBy, got "
            f"{type(grouped_data).__name__}."
        )
    frame: DataFrame = grouped_data._df
    expressions = grouped_data._jgd.groupingExprs()
    return frame, [_column_of(frame, expressions.apply(at)) for at in range(expressions.size())]


def plan_transform_with_state(
    grouped_df: DataFrame,
    keys: Sequence[Column | str],
    statefulProcessor: StatefulProcessor,
    outputStructType: StructType | str,
    outputMode: str,
    timeMode: str,
    initialState: InitialState | None = None,
    eventTimeColumnName: str = "",
    use_pandas: bool = False,
    placed_by: PlacedBy | None = None,
) -> OperatorPlan:
    """Plan `grouped_df.groupBy(*keys).transformWithState(...)`; checks and errors are Spark's."""
    _refuse_connect(grouped_df)
    if not isinstance(statefulProcessor, StatefulProcessor):
        raise PySparkTypeError(
            "[NOT_STATEFUL_PROCESSOR] Argument `statefulProcessor` should be an instance of "
            f"StatefulProcessor, got {type(statefulProcessor).__name__}."
        )
    output = _struct(outputStructType)
    # 1. The two inputs
    rows = _keyed(grouped_df, keys)
    initial = _initial(initialState, rows)
    site_at = check_site(placed_by, rows.key_fields)
    # 2. Spark's own analysis finds bad modes, columns and types, in its own words
    _check_with_spark(
        rows, initial, statefulProcessor, output,
        (outputMode, timeMode, eventTimeColumnName), use_pandas,
    )  # fmt: skip
    # 3. The processor: can it travel, and which state does it want?
    time_mode = timeMode.lower()
    serializer: Any = CloudPickleSerializer
    pickled: bytes = serializer().dumps(statefulProcessor)
    handle = _pre_init(pickled, type(statefulProcessor).__name__, time_mode)
    # 4. The plan
    watermark_at = _watermark_at(grouped_df)
    conf = grouped_df.sparkSession.conf
    definition = RowOperatorDefinition(
        processor=pickled,
        processor_name=type(statefulProcessor).__name__,
        key_schema=StructType([_bare(field) for field in rows.key_fields]),
        # As in Spark, late rows are dropped in event time mode only.
        rows=RowInput(rows.names, rows.key_at, watermark_at if time_mode == "eventtime" else None),
        initial=None if initial is None else RowInput(initial.names, initial.key_at),
        output=StructType([_bare(field) for field in output.fields]),
        time_mode=time_mode,
        variables=tuple(handle.specs.values()),
        deleted=frozenset(handle.deleted),
        use_pandas=use_pandas,
        timezone=str(conf.get("spark.sql.session.timeZone")),
        settings=(
            *((name, _is_true(conf.get(key))) for name, key in _CONVERSIONS.items()),
            (INTEGERS_AS_DECIMALS, _is_true(conf.get(_COERCION, "false"))),
        ),
        limits=_defaults(grouped_df.sparkSession, LIMITS),
        placed_by=placed_by,
    )
    delay = None
    if watermark_at is not None:
        delay = int(grouped_df.schema.fields[watermark_at].metadata[WATERMARK_DELAY])
    return OperatorPlan(
        input=_hashed(rows, placed_by, site_at),
        definition=definition,
        output_schema=output,
        time_mode=time_mode,
        reads_clock=time_mode != "none",
        initial=None if initial is None else _hashed(initial, placed_by, site_at),
        event_time_column=eventTimeColumnName or None,
        watermark_delay_ms=delay,
    )


def _is_true(setting: Any) -> bool:
    return str(setting).lower() == "true"


def _defaults(spark: SparkSession, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What settings are where nobody sets them; this PySpark may not have all of them."""
    jvm: Any = spark._jvm
    fresh = jvm.org.apache.spark.sql.internal.SQLConf()
    return tuple(
        (name, str(fresh.getConfString(name))) for name in names if fresh.isModifiable(name)
    )


def _refuse_connect(frame: Any) -> None:
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgument(
            "Spark Connect sessions are not supported: the state service runs beside the driver. "
            "Use a classic session (SparkSession.builder.master(...))."
        )


def _struct(schema: StructType | str) -> StructType:
    parsed = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise PySparkTypeError(
            f"[NOT_STRUCT] Expected a StructType or a DDL string such as 'id long', got {schema!r}."
        )
    return parsed


def _bare(field: StructField) -> StructField:
    """Without metadata: a watermark's would travel into state and outputs."""
    return StructField(field.name, field.dataType, field.nullable)


def _column_of(frame: DataFrame, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = frame.sparkSession._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    return cast(Column, ClassicColumn(utils.column(expression)))


def _keyed(frame: DataFrame, keys: Sequence[Column | str]) -> _Keyed:
    """Find plain key columns in the frame, and add the computed ones."""
    names = tuple(frame.columns)
    if HASH in names:
        raise InvalidArgument(f"The column name {HASH} is reserved. Rename the column.")
    if not keys:
        return _Keyed(frame, names, (), ())
    columns = [F.col(key) if isinstance(key, str) else key for key in keys]
    chosen = frame.select(*columns)
    output = frame._jdf.queryExecution().analyzed().output()
    places = {output.apply(at).exprId().id(): at for at in range(output.size())}
    found = chosen._jdf.queryExecution().analyzed().output()
    key_at: list[int] = []
    added: list[Column] = []
    for position, column in enumerate(columns):
        at = places.get(found.apply(position).exprId().id())
        if at is None:
            at = len(names) + len(added)
            added.append(column.alias(f"__key{position}"))
        key_at.append(at)
    extended = frame.select(F.col("*"), *added) if added else frame
    return _Keyed(extended, names, tuple(key_at), tuple(chosen.schema.fields))


def _initial(state: InitialState | None, rows: _Keyed) -> _Keyed | None:
    if state is None:
        return None
    if not isinstance(state, tuple):
        state = grouping_of(state)
    initial = _keyed(*state)
    if initial.frame.isStreaming:
        raise InvalidArgument(
            "initialState must be a batch DataFrame: it is read once, in the first batch."
        )
    types = [field.dataType for field in rows.key_fields]
    initial_types = [field.dataType for field in initial.key_fields]
    if types != initial_types:
        wanted = ", ".join(kind.simpleString() for kind in types)
        given = ", ".join(kind.simpleString() for kind in initial_types)
        raise InvalidArgument(
            f"The grouping keys of initialState have types ({given}), but those of the stream have "
            f"({wanted}). Cast the keys of initialState."
        )
    return initial


def _check_with_spark(
    rows: _Keyed,
    initial: _Keyed | None,
    processor: StatefulProcessor,
    output: StructType,
    words: tuple[str, str, str],
    use_pandas: bool,
) -> None:
    """Let Spark analyse the same call and throw the plan away."""
    output_mode, time_mode, event_time = words
    grouped = rows.frame.groupBy(*rows.keys)
    call: Any = grouped.transformWithStateInPandas if use_pandas else grouped.transformWithState
    call(
        processor,
        output,
        output_mode,
        time_mode,
        None if initial is None else initial.frame.groupBy(*initial.keys),
        event_time,
    )


def _pre_init(pickled: bytes, name: str, time_mode: str) -> RecordingHandle:
    """Run `init` on a copy, as Spark does in the driver, to learn the state variables."""
    handle = RecordingHandle(time_mode, _struct)
    try:
        with counting(Tally()):  # Spark, too, counts nothing in the driver
            processor: StatefulProcessor = loads(pickled)
            processor.init(handle)
            processor.close()
    except PySparkException:
        raise
    except Exception as error:
        what = f"{name}.init or close failed in the driver"
        advice = "They run there once on a copy of the processor. Fix the processor."
        raise ProcessorError(user_failure(what, error, advice)) from None
    return handle


def _watermark_at(frame: DataFrame) -> int | None:
    for at, field in enumerate(frame.schema.fields):
        if WATERMARK_DELAY in field.metadata:
            return at
    return None


def _hashed(keyed: _Keyed, placed_by: PlacedBy | None, site_at: int | None) -> DataFrame:
    keys = keyed.keys
    hashed = hash_of(keys, placed_by, None if site_at is None else keys[site_at])
    return keyed.frame.select(hashed.alias(HASH), F.col("*"))
