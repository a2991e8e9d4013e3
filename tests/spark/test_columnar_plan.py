"""A user's columnar processor through the planner: keys, output types, time zones, event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.errors import InvalidArgument
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.spark.columnar import plan_columnar


class LastSeen(ColumnarProcessor):
    """Emits a key when it has not been seen for ten seconds of event time."""

    state_schema = pa.schema(
        [("seen", pa.timestamp("us", "UTC")), ("until", pa.timestamp("us", "UTC"))]
    )
    expiry = "until"

    def process(self, batch: KeyedBatch) -> Update:
        seen = batch.reduce(np.maximum, "ts")
        state = {name: pa.array(seen + extra) for name, extra in (("seen", 0), ("until", 10**7))}
        return Update(state=pa.table(state))

    def expire(self, batch: KeyedBatch) -> Update:
        gone = np.ones(batch.num_keys, bool)
        output = batch.keys.append_column("seen", batch.state.column("seen"))
        return Update(drop=gone, output=output)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_user_processor(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.range(100, numPartitions=1).select(
            F.concat(F.lit("k"), F.col("id") % 7).alias("k"),
            F.timestamp_seconds("id").alias("ts"),
            "id",
        )
        plan = plan_columnar(df, ["k"], LastSeen(), "k string, seen timestamp")
        assert isinstance(plan.definition, ColumnarDefinition)
        assert plan.time_mode == "eventtime"
        rows: Any = plan.input.toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    worker = MemoryWorker(plan.definition)
    assert worker.run(rows.slice(0, 50)).num_rows == 0
    assert worker.run(rows.slice(50)).num_rows == 0
    output = worker.run(rows.slice(0, 0), watermark_ms=105_000)
    found = {row["k"]: row["seen"].timestamp() for row in output.to_pylist()}
    assert found == {f"k{i % 7}": float(i) for i in (93, 94, 95)}
    assert len(worker.dump()) == 4


def test_mistakes(spark: SparkSession) -> None:
    df = spark.range(1).select(F.col("id").alias("k"), F.timestamp_seconds("id").alias("ts"))
    with pytest.raises(InvalidArgument, match="no watermark"):
        plan_columnar(df, ["k"], LastSeen(), "k long, seen timestamp", event_time="ts")
    with pytest.raises(InvalidArgument, match="used twice"):
        plan_columnar(df.withColumnRenamed("k", "seen"), ["seen"], LastSeen(), "k long")
