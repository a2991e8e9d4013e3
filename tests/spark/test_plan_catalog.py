"""What runs where: each aggregate function of this Spark, and the table in the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from anabranch.spark.plans.catalog import AGGREGATE, table
from anabranch.spark.plans.catalyst import Catalyst
from anabranch.spark.plans.functions import NO_STATE, ON_SERVICE, ON_SPARK, function_lines
from anabranch.spark.plans.rewriter import Choice, PlanRewriter, QueryWords

PAGE = Path(__file__).parents[2] / "docs" / "plans.md"

ARGUMENTS = ("b", "l", "x", "s", "x, x", "s, l", "x, 0.5", "l, 2")
"""Columns of the types that some function takes."""


def aggregate_functions(spark: SparkSession) -> Iterator[str]:
    jvm: Any = spark._jvm
    entries = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.expressions().iterator()
    while entries.hasNext():
        entry = entries.next()
        if entry._2()._1().getGroup() == "agg_funcs":
            yield str(entry._1())


def test_every_function_is_classified(spark: SparkSession) -> None:
    known = set(ON_SERVICE) | NO_STATE | {name for names in ON_SPARK.values() for name in names}
    assert not set(aggregate_functions(spark)) - known, "put them into spark/plans/functions.py"


@pytest.mark.soak
def test_functions_run_where_the_catalog_says(spark: SparkSession) -> None:
    df = spark.readStream.format("rate").load()
    df = df.selectExpr("value l", "double(value) x", "string(value) s", "value > 3 b")
    df.createOrReplaceTempView("typed")
    names = set(aggregate_functions(spark)) - NO_STATE
    found = {name: where for name in names if (where := _where(spark, name)) is not None}
    assert {name for name, is_ours in found.items() if is_ours} == ON_SERVICE & found.keys()
    assert found.keys() >= ON_SERVICE & names
    assert sum(not is_ours for is_ours in found.values()) > 10


def _where(spark: SparkSession, name: str) -> bool | None:
    """Whether a function runs on the service; None: it takes none of the arguments."""
    for arguments in ARGUMENTS:
        try:
            df = spark.sql(f"SELECT {name}({arguments}) r FROM typed GROUP BY l % 3")
        except (AnalysisException, Py4JJavaError):
            continue
        catalyst = Catalyst(spark)
        rewriter = PlanRewriter(catalyst, Choice(), QueryWords("update"))
        rewriter.rewrite(catalyst.prepared(catalyst.plan_of(df)))
        (found,) = rewriter.found
        assert found.kind is AGGREGATE
        return found.is_ours
    return None


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"<!-- generated: what runs where -->\n(.*)<!-- end -->", text, re.DOTALL)
    assert found is not None
    wanted = "\n".join([*table(), "", *function_lines()])
    assert found[1].strip() == wanted, f"copy this into docs/plans.md:\n{wanted}"
