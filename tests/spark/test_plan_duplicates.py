"""Deduplication under `service.enable()`, beside Spark's own, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.beside import check_program

from anabranch import StateService


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


def many(df: DataFrame) -> DataFrame:
    """Several in one query, of all kinds; what of equal rows comes first is not said by Spark."""
    by_time = df.select("k", "ts").dropDuplicates(["k", "ts"])
    plain = df.select("x", "d", "s").distinct()
    window = df.select(F.window("ts", "5 seconds").alias("w"), "b").dropDuplicates()
    chained = df.where("v is null or v <> 3").select("v", "ts").dropDuplicates(["v", "ts"])
    chained = chained.select("v").dropDuplicates().where("v is null or v < 5")
    within = df.select("k", "ts", "v").dropDuplicatesWithinWatermark(["k", "v", "ts"])
    text = [
        part.select(F.lit(str(at)).alias("part"), F.to_json(F.struct("*")).alias("row"))
        for at, part in enumerate((by_time, plain, window, chained, within))
    ]
    first, *others = text
    for other in others:
        first = first.union(other)
    return first


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", pytest.param("update", marks=pytest.mark.soak)])
def test_all_kinds(spark: SparkSession, service: StateService, tmp_path: Path, mode: str) -> None:
    shown = check_program(spark, service, tmp_path, many, mode)
    for part in "01234":
        assert sum(f"('part', '{part}')" in row for rows in shown.values() for row in rows) > 5
