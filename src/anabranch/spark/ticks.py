"""Batches without new rows: a source that never has rows, only offsets.

Spark runs such batches only for its own stateful operators. Timers and windows of ours need them
too, so their input is joined by a source whose offset moves on when Spark's own rule would ask for
another batch. It lives in the JVM (java/TickSource.java): it asks the query's own execution, and
needs no process that could be late.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.java_classes import java_object
from anabranch.spark.plan import OperatorPlan

TICKS = "anabranch.TickSource"
"""How the source is called in Spark's plans."""

TICKS_MARK = "anabranch_ticks"
"""The file that marks the source's folder in a checkpoint."""


def with_ticks(plan: OperatorPlan) -> DataFrame:
    """The operator's input, joined by ticks if its time mode needs them."""
    if plan.time_mode == "none":
        return plan.input
    session = plan.input.sparkSession
    return plan.input.union(ticks(session, plan.input.schema.json(), plan.time_mode))


def ticks(session: SparkSession, schema_json: str, time_mode: str) -> DataFrame:
    """A stream of no rows with these columns."""
    java_session: Any = session._jsparkSession
    schema = java_session.parseDataType(schema_json)
    source = java_object(session, "TickSource")
    return DataFrame(source.open(java_session, schema, time_mode), session)


def has_ticks(plan: Any) -> bool:
    """Whether a logical plan has a source of ticks."""
    leaves = plan.collectLeaves()
    return any(TICKS in leaves.apply(at).toString() for at in range(leaves.size()))
