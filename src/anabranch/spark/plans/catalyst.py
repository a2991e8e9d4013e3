"""Logical plans of Spark as Python sees them: through py4j, with no class of ours in the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType, _parse_datatype_json_string

WATERMARK_DELAY = "spark.watermarkDelayMs"
"""Metadata key of an event-time column, as Spark sets it."""

Node = Any
"""A logical plan, an expression, an attribute: objects in the JVM."""


def items(scala_seq: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [scala_seq.apply(at) for at in range(scala_seq.size())]


def optional(option: Any) -> Any | None:
    """What a Scala Option has; None if it is empty."""
    return option.get() if option.isDefined() else None  # no limit: it waits for nothing


def children(node: Node) -> list[Node]:
    """Of a plan or an expression."""
    return items(node.children())


def class_of(node: Node) -> str:
    """The simple name of its class; `hasattr` on such objects tells nothing."""
    return str(node.getClass().getSimpleName())


def type_of(expression: Node) -> DataType:
    """The type of an expression."""
    return _parse_datatype_json_string(expression.dataType().json())


def event_times(attributes: Iterable[Node]) -> list[Node]:
    """The attributes that carry event time."""
    return [each for each in attributes if each.metadata().contains(WATERMARK_DELAY)]


def delay_ms(attribute: Node) -> int:
    """The watermark's delay of an event-time attribute."""
    return int(attribute.metadata().getLong(WATERMARK_DELAY))


def field_of(attribute: Node, name: str) -> StructField:
    """A column for an attribute, without its metadata."""
    return StructField(name, type_of(attribute), bool(attribute.nullable()))


class Catalyst:
    """Makes plans and expressions in a session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self.spark = spark
        self._jvm = jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._expressions = self._catalyst.expressions

    # -- plans --

    def plan_of(self, df: DataFrame) -> Node:
        """What Spark has analysed."""
        return df._jdf.queryExecution().analyzed()

    def frame(self, plan: Node) -> DataFrame:
        """A plan as a DataFrame."""
        session: Any = self.spark._jsparkSession
        made = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
        return DataFrame(made, self.spark)

    def prepared(self, plan: Node) -> Node:
        """The plan as its operators have to be cut: names gone, predicates pushed down.

        Spark pushes predicates below watermarks, which decides what is late. After the cut it could
        not: lanes are a barrier. It is not the whole optimizer, which would fix the current time.
        """
        optimizer = self._catalyst.optimizer
        plan = self._inlined(plan)
        analysis = self._catalyst.analysis
        plan = analysis.EliminateSubqueryAliases.apply(plan)
        plan = self._object(analysis, "EliminateView").apply(plan)
        for rule in ("ReplaceExpressions", "PushDownPredicates", "ColumnPruning"):
            plan = self._object(optimizer, rule).apply(plan)
        return plan

    def _inlined(self, plan: Node) -> Node:
        """Common table expressions where they are used; newer releases have more settings."""
        name = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"
        (constructor,) = self._jvm.org.apache.spark.util.Utils.classForName(
            name, True, False
        ).getConstructors()
        settings = [True, *[False] * (constructor.getParameterCount() - 1)]
        return self._catalyst.optimizer.InlineCTE(*settings).apply(plan)

    def with_children(self, plan: Node, given: Sequence[Node]) -> Node:
        """The same node above other plans."""
        return plan.withNewChildren(self.seq(given))

    def project(self, expressions: Sequence[Node], child: Node) -> Node:
        """Named expressions over a plan."""
        return self._catalyst.plans.logical.Project(self.seq(expressions), child)

    def union(self, left: Node, right: Node) -> Node:
        """Rows of both, under the ids of the first."""
        return self._catalyst.plans.logical.Union(self.seq([left, right]), False, False)

    def check_streaming(self, plan: Node, output_mode: Node) -> None:
        """Raise what Spark raises for a query that it does not support."""
        checker = self._object(self._catalyst.analysis, "UnsupportedOperationChecker")
        checker.checkForStreaming(plan, output_mode)

    def physical_aggregation(self, aggregate: Node) -> tuple[list[Node], list[Node], list[Node]]:
        """How Spark itself takes an Aggregate apart: keys, functions, results."""
        found = self._object(self._catalyst.planning, "PhysicalAggregation").unapply(aggregate)
        parts = optional(found)
        assert parts is not None
        return items(parts._1()), items(parts._2()), items(parts._3())

    def schema_json(self, plan: Node) -> str:
        """Names, types and metadata of a plan's columns."""
        return str(plan.schema().json())

    # -- expressions --

    def seq(self, given: Iterable[Any]) -> Any:
        """A list as a Scala sequence."""
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(given))

    def alias(self, expression: Node, name: str, like: Node | None = None) -> Node:
        """A column of its own; `like` is the attribute that it stands for from now on."""
        none = self._seq_none()
        if like is None:
            identity = self._expressions.NamedExpression.newExprId()
            return self._expressions.Alias(
                expression, name, identity, self.seq([]), none, self.seq([])
            )
        metadata = self._jvm.scala.Some(like.metadata())
        return self._expressions.Alias(
            expression, name, like.exprId(), like.qualifier(), metadata, self.seq([])
        )

    def field_at(self, struct: Node, at: int, name: str) -> Node:
        """A field of a struct."""
        return self._expressions.GetStructField(struct, at, self._jvm.scala.Some(name))

    def when(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """One value or the other."""
        return self._expressions.If(condition, then, otherwise)

    def window(self, start: Node, end: Node, like: Node) -> Node:
        """A window from its two columns, of the type of an attribute."""
        names = [self._literal(name) for name in ("start", "end")]
        made = self._expressions.CreateNamedStruct(self.seq([names[0], start, names[1], end]))
        if not like.nullable():
            return self._expressions.KnownNotNull(made)
        literal = self._object(self._expressions, "Literal").create(None, like.dataType())
        return self.when(self._expressions.IsNull(end), literal, made)

    def _literal(self, value: Any) -> Node:
        return self._object(self._expressions, "Literal").apply(value)

    def _seq_none(self) -> Any:
        return self._jvm.scala.Option.apply(None)

    def _object(self, package: Any, name: str) -> Any:
        """A Scala object."""
        return getattr(getattr(package, f"{name}$"), "MODULE$")


def schema_of(attributes: Sequence[Node], names: Sequence[str]) -> StructType:
    """Columns for attributes, under names of ours."""
    return StructType([field_of(a, name) for a, name in zip(attributes, names, strict=True)])
