"""Plans grouped aggregates: Spark makes and reads the states of rows, workers merge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    DayTimeIntervalType,
    DoubleType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.kernels import Count, Kernel, Sum
from anabranch.processor.columnar.merging import ExpressionKernel, MergedSessions, MergeProcessor
from anabranch.processor.columnar.sessions import SESSION_END, SESSION_START
from anabranch.processor.sites import PlacedBy
from anabranch.spark.columnar import arrow_schema, with_hash
from anabranch.spark.plan import OperatorPlan, check_site
from anabranch.spark.plans.catalog import SESSION_MARK
from anabranch.spark.plans.catalyst import (
    Catalyst,
    Node,
    class_of,
    event_times,
    field_of,
    items,
    optional,
    type_of,
)
from anabranch.spark.plans.fingerprint import fingerprint
from anabranch.spark.plans.merge_expressions import arrow_type, literal_value, merge_expressions
from anabranch.spark.plans.operator import (
    NodeInput,
    Replacement,
    StaysNative,
    check_types,
    own_names,
)
from anabranch.state.columnar.layout import nullable

SESSION = "__session"
"""The result's column with the session."""

DECLARATIVE = "org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate"


@dataclass(frozen=True)
class _Key:
    """A grouping key, as one column or, of a window, as its start and its end."""

    attribute: Node
    expression: Node
    names: tuple[str, ...]
    is_session: bool = False

    @property
    def is_window(self) -> bool:
        return len(self.names) == 2


@dataclass(frozen=True)
class _Function:
    """An aggregate function of the node."""

    call: Node
    """With its filter."""
    names: tuple[str, ...]
    """Of its state's columns."""
    fields: tuple[StructField, ...]
    kernel: Kernel

    @property
    def buffer(self) -> list[Node]:
        """Attributes that stand for its state in its own expressions."""
        return items(self.call.aggregateFunction().aggBufferAttributes())

    @property
    def initial(self) -> list[Node]:
        """The state of no rows."""
        return items(self.call.aggregateFunction().initialValues())


@dataclass(frozen=True)
class _Parts:
    """How Spark takes the node apart."""

    keys: list[_Key]
    functions: list[_Function]
    results: list[Node]


def plan_aggregate(given: NodeInput, placed_by: PlacedBy | None) -> Replacement:
    """Of an Aggregate, or a Distinct."""
    catalyst = given.catalyst
    if given.output_mode == "complete":
        raise StaysNative("in complete mode, Spark refuses queries without aggregates of its own")
    parts = _parts(given)
    closing = _closing(parts.keys)
    # 1. Keys, and each row as a state of its own; sessions are no keys, but found by the worker
    columns = [pair for key in parts.keys for pair in _key_columns(catalyst, key)]
    columns += [pair for each in parts.functions for pair in _state_columns(catalyst, each)]
    none = [
        pair for each in parts.functions for pair in zip(each.buffer, each.initial, strict=True)
    ]
    frame = given.frame(columns, none)
    key_names = [name for key in parts.keys if not key.is_session for name in key.names]
    keys = frame.select(*key_names).schema if key_names else StructType([])
    by = placed_by if placed_by is not None and placed_by.column in keys.names else None
    check_site(by, keys.fields)
    # 2. The operator: keys and states come out of it
    shown = [StructField(f.name, f.dataType, f.nullable) for f in keys]
    shown += [field_of(key.attribute, SESSION) for key in parts.keys if key.is_session]
    output = StructType(shown + [field for each in parts.functions for field in each.fields])
    arrow = nullable(arrow_schema(output))
    definition = ColumnarDefinition(
        processor=_processor(parts, arrow, given.output_mode, closing),
        key_schema=arrow_schema(keys),
        input_schema=arrow_schema(frame.schema),
        output_schema=arrow,
        late=closing,
        placed_by=by,
    )
    plan = OperatorPlan(
        input=with_hash(frame, key_names, by),
        definition=definition,
        output_schema=output,
        reads_clock=closing is not None,
    )
    return Replacement(plan, lambda result: _results(catalyst, parts, result))


def _processor(
    parts: _Parts, output: pa.Schema, output_mode: str, closing: str | None
) -> ColumnarProcessor:
    kernels = [each.kernel for each in parts.functions]
    names = [each.names for each in parts.functions]
    if any(key.is_session for key in parts.keys):
        if closing is None:
            raise StaysNative("its sessions have no event time")
        return MergedSessions(kernels, names, output, _fingerprint(parts))
    return MergeProcessor(
        kernels,
        names,
        output,
        fingerprint=_fingerprint(parts),
        append=output_mode == "append",
        expiry=closing,
        idle=None if parts.keys else _idle(parts.functions),
    )


# -- what the node computes --


def _parts(given: NodeInput) -> _Parts:
    if class_of(given.node) == "Distinct":
        attributes = given.attributes()
        return _Parts(_keys(attributes), [], attributes)
    grouping, calls, results = given.catalyst.physical_aggregation(given.node)
    names = _keys(grouping)
    return _Parts(names, [_function(at, call) for at, call in enumerate(calls)], results)


def _keys(grouping: Sequence[Node]) -> list[_Key]:
    attributes = [each.toAttribute() for each in grouping]
    check_types(attributes, attributes)
    found = []
    for expression, attribute, name in zip(
        grouping, attributes, own_names(attributes), strict=True
    ):
        is_session = attribute.metadata().contains(SESSION_MARK)
        names = (f"{name}_start", f"{name}_end") if _is_window(attribute) else (name,)
        if is_session:
            names = (SESSION_START, SESSION_END)
        inside = expression.child() if class_of(expression) == "Alias" else expression
        found.append(_Key(attribute, inside, names, is_session))
    return found


def _is_window(attribute: Node) -> bool:
    kind = type_of(attribute)
    moments = (TimestampType, TimestampNTZType)
    return (
        isinstance(kind, StructType)
        and kind.names == ["start", "end"]
        and all(isinstance(field.dataType, moments) for field in kind.fields)
    )


def _function(at: int, call: Node) -> _Function:
    function = call.aggregateFunction()
    name = str(function.prettyName())
    if call.isDistinct():
        raise StaysNative(f"{name} is of distinct values")
    if not _is_declarative(function):
        raise StaysNative(f"{name} has a state that only Spark can merge")
    buffer = items(function.aggBufferAttributes())
    check_types(buffer, ())
    names = tuple(f"{at}_{attribute.name()}" for attribute in buffer)
    if len(set(names)) < len(names):  # a function made of two others
        names = tuple(f"{at}_{place}_{a.name()}" for place, a in enumerate(buffer))
    fields = tuple(field_of(a, own) for a, own in zip(buffer, names, strict=True))
    try:
        return _Function(call, names, fields, _kernel(function, fields))
    except StaysNative as reason:
        raise StaysNative(f"{name}: {reason}") from None


def _is_declarative(function: Node) -> bool:
    kind = function.getClass()
    while kind is not None:
        if kind.getName() == DECLARATIVE:
            return True
        kind = kind.getSuperclass()
    return False


def _kernel(function: Node, fields: Sequence[StructField]) -> Kernel:
    """A quick one where there is one, else the function's own merge expressions."""
    name = class_of(function)
    kinds = [field.dataType for field in fields]
    if name == "Count":
        return Count()
    if name == "Sum" and len(kinds) == 1 and isinstance(kinds[0], DoubleType | DayTimeIntervalType):
        return Sum(arrow_type(kinds[0]), ansi=True)
    if name == "Sum" and len(kinds) == 1 and isinstance(kinds[0], LongType):
        is_ansi = "add_checked" in str(merge_expressions(function))
        return Sum(arrow_type(kinds[0]), is_ansi)
    columns = [pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in fields]
    return ExpressionKernel(columns, merge_expressions(function))


def _closing(keys: Sequence[_Key]) -> str | None:
    """The key column on which groups close, if one has event time."""
    timed = event_times(key.attribute for key in keys)
    if not timed:
        return None
    if len(timed) > 1:
        raise StaysNative("it is grouped by several columns with event time")
    (key,) = (each for each in keys if each.attribute.equals(timed[0]))
    return key.names[-1]


def _fingerprint(parts: _Parts) -> list[str]:
    calls = [each.call for each in parts.functions]
    return fingerprint([*(key.expression for key in parts.keys), *calls])


# -- before the shuffle --


def _key_columns(catalyst: Catalyst, key: _Key) -> list[tuple[Node, str]]:
    if not key.is_window:
        return [(key.expression, key.names[0])]
    fields = (("start", 0), ("end", 1))
    return [
        (catalyst.field_at(key.expression, at, field), name)
        for (field, at), name in zip(fields, key.names, strict=True)
    ]


def _state_columns(catalyst: Catalyst, each: _Function) -> list[tuple[Node, str]]:
    """The state after one row: the function's updates of the state of no rows, put below."""
    states = items(each.call.aggregateFunction().updateExpressions())
    condition = optional(each.call.filter())
    if condition is not None:
        pairs = zip(states, each.buffer, strict=True)
        states = [catalyst.when(condition, state, none) for state, none in pairs]
    return list(zip(states, each.names, strict=True))


def _idle(functions: Sequence[_Function]) -> dict[str, Any]:
    return {
        name: literal_value(literal)
        for each in functions
        for name, literal in zip(each.names, each.initial, strict=True)
    }


# -- after the operator --


def _results(catalyst: Catalyst, parts: _Parts, result: Node) -> Node:
    """Results from states, by Spark's expressions, then whatever the node makes of them."""
    columns = {str(column.name()): column for column in items(result.output())}
    states, results = [], []
    for key in parts.keys:
        if key.is_session:
            value = columns[SESSION]
        elif key.is_window:
            start, end = (columns[name] for name in key.names)
            value = catalyst.window(start, end, key.attribute)
        else:
            value = columns[key.names[0]]
        states.append(catalyst.alias(value, key.attribute.name(), like=key.attribute))
        results.append(key.attribute)
    for each in parts.functions:
        own = zip(each.names, each.buffer, strict=True)
        states += [catalyst.alias(columns[name], a.name(), like=a) for name, a in own]
        attribute, function = each.call.resultAttribute(), each.call.aggregateFunction()
        value = function.evaluateExpression()
        results.append(catalyst.alias(value, attribute.name(), like=attribute))
    inner = catalyst.project(results, catalyst.project(states, result))
    return catalyst.project(parts.results, inner)
