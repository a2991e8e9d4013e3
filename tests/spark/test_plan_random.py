"""Random plans of operators that are taken over, beside Spark, batch by batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.beside import check_program

from anabranch import StateService

AGGREGATES = (
    "count(*)", "count(v)", "sum(v)", "avg(d)", "min(s)", "max(x)", "stddev(v)", "bool_or(b)",
    "sum(d)", "count_if(v > 1)", "max_by(j, struct(ts).ts)", "count(s) FILTER (WHERE v < 3)",
)  # fmt: skip
FILTERS = ("v is null or v <> 2", "k is not null", "x > 0", "length(s) < 3 or s is null")


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


def randomly(df: DataFrame, seed: int) -> DataFrame:
    """Filters, perhaps a deduplication, then grouping by time, perhaps twice, or by keys."""
    chance = random.Random(seed)
    for text in chance.sample(FILTERS, chance.randrange(3)):
        df = df.where(text)
    if chance.random() < 0.4:
        # All columns, so that it does not matter which of equal rows comes first.
        df = df.dropDuplicates()
    time: Column = chance.choice(
        [
            F.window("ts", "10 seconds"),
            F.window("ts", "9 seconds", "4 seconds"),
            F.session_window("ts", "3 seconds"),
        ]
    ).alias("w")
    keys = [F.col(name) for name in chance.sample(["k", "s", "b"], chance.randrange(1, 3))]
    chosen = chance.sample(AGGREGATES, chance.randrange(1, 5))
    grouped = df.groupBy(time, *keys).agg(
        *(F.expr(text).alias(f"a{at}") for at, text in enumerate(chosen))
    )
    if chance.random() < 0.4:
        grouped = grouped.groupBy(F.window("w", "20 seconds")).agg(F.count("*").alias("n"))
    elif chance.random() < 0.3:
        grouped = grouped.where("w.end > timestamp '1970-01-01 00:00:40'")
    return grouped


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_random_plans(
    spark: SparkSession, service: StateService, tmp_path: Path, seed: int
) -> None:
    check_program(spark, service, tmp_path, lambda df: randomly(df, seed), "append", seed)
