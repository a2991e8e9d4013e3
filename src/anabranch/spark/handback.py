"""The way back: state as the initial state of Spark's own `transformWithState`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from anabranch.errors import InvalidArgument
from anabranch.spark.checkpoint_folder import Checkpoint
from anabranch.spark.state_reader import StateReader, StateSelection
from anabranch.spark.state_shapes import TTL_COLUMN, Shape
from anabranch.spark.state_source import STATE_FORMAT, register

STATE = "state"
TIMER_FIELD = "timers"
_METHODS = ("getValueState", "getListState", "getMapState")


def initial_state(
    spark: SparkSession,
    location: str,
    operatorName: str | None = None,
    batchId: int | None = None,
    ignoreWaitingRows: bool = False,
) -> DataFrame:
    """All state of a `transformWithState` operator, a row for each key: for `initialState`.

    Key columns have their names; `state` is a struct with a field for each state variable (value:
    struct, list: array, map: array of key and value) and `timers`. `Restoring` puts it in its
    place. Times to live start again: Spark's API cannot set them. What had expired by the batch is
    left out. Under `checkpoint="unaligned"` or
    `"independent"` rows may be stored that only the operator can apply: run a batch with
    `checkpoint="changelog"` first, or leave them out (`ignoreWaitingRows`).

    Examples
    --------
    >>> state = anabranch.initial_state(spark, "state/orders", "counts")      # doctest: +SKIP
    >>> df.groupBy("k").transformWithState(                                   # doctest: +SKIP
    ...     anabranch.Restoring(Counter()), "k long, c long", "Update", "None",
    ...     initialState=state.groupBy("k"),
    ... )
    """
    register(spark)
    # Chosen once: a running service goes on while the variables are read one after the other.
    chosen = StateReader(location, StateSelection(operatorName, epoch=batchId))
    shapes = list(chosen.variables.values())
    if shapes[0].kind in ("aggregate", "sessions", "columnar"):
        raise InvalidArgument(
            f"Operator {chosen.operator!r} is no transformWithState, and Spark's other operators "
            'take no initial state. Read it with spark.read.format("anabranch").'
        )
    keys = shapes[0].key_schema.names
    if STATE in keys:
        raise InvalidArgument(
            f"A key column is named {STATE!r}, as the column for the state is. Read the state "
            'with spark.read.format("anabranch") and choose other names.'
        )

    def read(shape: Shape) -> DataFrame:
        reader = spark.read.format(STATE_FORMAT).option("operatorName", chosen.operator)
        reader = reader.option("batchId", chosen.epoch)
        reader = reader.option("ignoreWaitingRows", ignoreWaitingRows)
        if shape.kind == "timers":
            return reader.option("readRegisteredTimers", True).load(location)
        reader = reader.option("stateVarName", shape.variable)
        return reader.option("flattenCollectionTypes", shape.kind != "list").load(location)

    now_ms = chosen.batch_time_ms
    frames = [
        _entries(_live(read(shape), shape, now_ms), shape, keys, f"__v{i}")
        for i, shape in enumerate(shapes)
    ]
    rows = functools.reduce(
        lambda left, right: left.unionByName(right, allowMissingColumns=True), frames
    )
    found = [F.first(f"__v{i}", ignorenulls=True).alias(f"__f{i}") for i in range(len(shapes))]
    whole = rows.groupBy(*(f"__k{i}" for i in range(len(keys)))).agg(*found)
    names = [TIMER_FIELD if shape.kind == "timers" else shape.variable for shape in shapes]
    state = F.struct(*(F.col(f"__f{i}").alias(name) for i, name in enumerate(names)))
    return whole.select(
        *(F.col(f"__k{i}").alias(name) for i, name in enumerate(keys)), state.alias(STATE)
    )


def _live(frame: DataFrame, shape: Shape, now_ms: int | None) -> DataFrame:
    """Without what had expired by the batch: a new time to live would bring it back."""
    if not shape.ttl or now_ms is None:
        return frame
    match shape.kind:
        case "value":
            return frame.where(F.col("value")[TTL_COLUMN] > now_ms)
        case "list":
            live = F.filter("list_value", lambda element: element[TTL_COLUMN] > now_ms)
            return frame.withColumn("list_value", live).where(F.size("list_value") > 0)
        case _:
            return frame.where(F.col("user_map_value")[TTL_COLUMN] > now_ms)


def _entries(frame: DataFrame, shape: Shape, keys: Sequence[str], column: str) -> DataFrame:
    """One row a key with all entries of a state variable, without times to live."""
    names = [f"__k{i}" for i in range(len(keys))]
    numbered = [F.col("key")[key].alias(name) for key, name in zip(keys, names, strict=True)]
    match shape.kind:
        case "value":
            value = F.col("value.value") if shape.ttl else F.col("value")
            return frame.select(*numbered, value.alias(column))
        case "list":
            values = F.col("list_value")
            if shape.ttl:
                values = F.transform(values, lambda element: element["value"])
            return frame.select(*numbered, values.alias(column))
        case "map":
            value = F.col("user_map_value.value") if shape.ttl else F.col("user_map_value")
            entry = F.struct(F.col("user_map_key").alias("key"), value.alias("value"))
        case _:
            entry = F.col("expiration_timestamp_ms")
    flat = frame.select(*numbered, entry.alias(column))
    return flat.groupBy(*names).agg(F.collect_list(column).alias(column))


def source_offsets(spark: SparkSession, checkpoint: str) -> list[str | None]:
    """Where a query's sources were after its last batch, as JSON; the first source first.

    What Kafka's `startingOffsets` takes.
    """
    opened = Checkpoint(spark, checkpoint)
    return opened.user_offsets(opened.committed_batch())


class Restoring(StatefulProcessor):
    """Another processor that starts with what `initial_state` gives, whatever variables it has."""

    def __init__(self, processor: StatefulProcessor) -> None:
        self._processor = processor
        self._states: dict[str, Any] = {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = {}
        self._handle = handle
        recorder: Any = _Recorder(handle, self._states)
        self._processor.init(recorder)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        return self._processor.handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        return self._processor.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        if isinstance(initialState, Row):
            given = [initialState[STATE]]
        else:  # transformWithStateInPandas
            given = list(initialState[STATE])
        for state in map(_fields, given):
            for name, value in state.items():
                if value is None:
                    continue
                if name == TIMER_FIELD and name not in self._states:
                    for expiry_ms in value:
                        self._handle.registerTimer(int(expiry_ms))
                elif name in self._states:
                    _put(self._states[name], value)

    def close(self) -> None:
        self._processor.close()


class _Recorder:
    """A handle that remembers the state variables that it gives out."""

    def __init__(self, handle: StatefulProcessorHandle, states: dict[str, Any]) -> None:
        self._handle = handle
        self._states = states

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._handle, name)
        if name not in _METHODS:
            return method

        def define(stateName: str, *args: Any, **kw: Any) -> Any:
            self._states[stateName] = state = method(stateName, *args, **kw)
            return state

        return define


def _put(state: Any, value: Any) -> None:
    if hasattr(state, "appendList"):
        state.put([_tuple(element) for element in value])
    elif hasattr(state, "updateValue"):
        for entry in map(_fields, value):
            state.updateValue(_tuple(entry["key"]), _tuple(entry["value"]))
    else:
        state.update(_tuple(value))


def _fields(struct: Any) -> Mapping[str, Any]:
    """Structs are Rows, or dicts in pandas."""
    if isinstance(struct, Mapping):
        return struct
    return dict(zip(struct.__fields__, struct, strict=True))


def _tuple(struct: Any) -> tuple[Any, ...]:
    return tuple(_fields(struct).values())
