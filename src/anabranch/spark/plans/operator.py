"""What a planner makes of one stateful node: an operator of the service, or a reason not to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from anabranch.model.keyspace import GROUP, HASH, OP
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.plans.catalyst import Catalyst, Node, event_times, items, type_of

_IDS = re.compile(r"#\d+L?")
"""In names that Spark makes of expressions: they differ each time."""
_TAKEN_APART = re.compile(r"[.`]")
_NOT_COLUMNAR = ("VariantType", "GeometryType", "GeographyType", "CalendarIntervalType")


class StaysNative(Exception):
    """The operator is left to Spark; the text says why."""


@dataclass(frozen=True)
class Replacement:
    """An operator for a node."""

    plan: OperatorPlan
    restore: Callable[[Node], Node]
    """From the operator's result to a plan with the node's own columns and ids."""


@dataclass(frozen=True)
class NodeInput:
    """A stateful node, and what is below it (perhaps replaced already)."""

    catalyst: Catalyst
    node: Node
    child: Node
    output_mode: str

    def attributes(self) -> list[Node]:
        """The columns that the node reads."""
        return items(self.child.output())

    def event_time(self) -> Node | None:
        """The one column with event time, if there is one."""
        found = event_times(self.attributes())
        if len(found) > 1:
            raise StaysNative("its input has several columns with event time")
        return found[0] if found else None

    def frame(
        self, columns: Sequence[tuple[Node, str]], given: Sequence[tuple[Node, Node]] = ()
    ) -> DataFrame:
        """Expressions over the input, under names of ours; they may use `given` attributes too."""
        below = self.child
        if given:
            added = [self.catalyst.alias(value, a.name(), like=a) for a, value in given]
            below = self.catalyst.project([*self.attributes(), *added], below)
        aliases = [self.catalyst.alias(expression, name) for expression, name in columns]
        return self.catalyst.frame(self.catalyst.project(aliases, below))


def moment_of(catalyst: Catalyst, event_time: Node) -> Node:
    """What is compared with the watermark: of a window, its end."""
    if isinstance(type_of(event_time), StructType):
        return catalyst.field_at(event_time, 1, "end")
    return event_time


def restored_columns(catalyst: Catalyst, attributes: Sequence[Node]) -> Callable[[Node], Node]:
    """The result's columns, in their order, under the ids that the rest of the plan knows."""

    def restore(result: Node) -> Node:
        pairs = zip(attributes, items(result.output()), strict=True)
        named = [catalyst.alias(column, old.name(), like=old) for old, column in pairs]
        return catalyst.project(named, result)

    return restore


def own_names(attributes: Sequence[Node]) -> list[str]:
    """The columns' names, made different where they are not, without what PySpark takes apart."""
    seen = {HASH.lower(), GROUP.lower(), OP.lower()}
    names = []
    for attribute in attributes:
        base = name = _TAKEN_APART.sub("_", _IDS.sub("", str(attribute.name())))
        number = 2
        while name.lower() in seen:
            name, number = f"{base}_{number}", number + 1
        seen.add(name.lower())
        names.append(name)
    return names


def check_types(attributes: Sequence[Node], keys: Sequence[Node]) -> None:
    """Raise if a column cannot travel, or a key cannot be compared by its bytes."""
    for attribute in attributes:
        for part in _parts(type_of(attribute)):
            if type(part).__name__ in _NOT_COLUMNAR or not _is_known(part):
                raise StaysNative(f"its column {attribute.name()} is {part.simpleString()}")
    for key in keys:
        for part in _parts(type_of(key)):
            if isinstance(part, StringType) and part.collation not in ("UTF8_BINARY", None):
                raise StaysNative(f"its key {key.name()} has the collation {part.collation}")


def _is_known(kind: DataType) -> bool:
    return isinstance(kind, AtomicType | ArrayType | MapType | StructType)


def _parts(kind: DataType) -> list[DataType]:
    if isinstance(kind, ArrayType):
        return [kind, *_parts(kind.elementType)]
    if isinstance(kind, MapType):
        return [kind, *_parts(kind.keyType), *_parts(kind.valueType)]
    if isinstance(kind, StructType):
        return [kind, *(p for f in kind.fields for p in _parts(f.dataType))]
    return [kind]
