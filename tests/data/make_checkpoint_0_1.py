"""Wrote `checkpoint-0.1`, with the code of release 0.1; see README.md."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from anabranch import StateService, agg

HERE = Path(__file__).parent / "checkpoint-0.1"
BATCHES = (
    [("a", 1), ("b", 2), ("a", 9)],
    [("a", 31), ("b", 4), ("b", 33)],
)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "input").mkdir()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    stream = spark.readStream.schema("k string, t double").option("maxFilesPerTrigger", 1)
    df = stream.json(str(folder / "input")).withColumn("ts", F.timestamp_seconds("t"))
    df = df.withWatermark("ts", "2 seconds")
    seen = {}

    def sink(batch, number):  # type: ignore[no-untyped-def]
        rows = batch.select("k", F.col("window.start").cast("long"), "n").collect()
        seen[number] = sorted(tuple(row) for row in rows)

    with StateService(spark, str(folder / "state"), workers=1, lanes=1, key_groups=4) as service:
        window = agg.tumbling("ts", "5 seconds")
        result = service.group_by(df, "k", window=window).aggregate(
            n=agg.count(), outputMode="append", name="closed"
        )
        writer = result.writeStream.foreachBatch(sink).outputMode("append")
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        for number, rows in enumerate(BATCHES):
            path = folder / f"{number}.json"
            path.write_text("\n".join(json.dumps({"k": k, "t": t}) for k, t in rows))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
            path.rename(folder / "input" / path.name)
            query.processAllAvailable()
        query.stop()
    spark.stop()
    shutil.rmtree(HERE, ignore_errors=True)
    shutil.copytree(folder, HERE, ignore=shutil.ignore_patterns(".*.crc", "lock"))
    for path in (HERE / "checkpoint/sources").rglob("[0-9]"):
        if path.is_file():
            path.write_text(path.read_text().replace(f"file://{folder}", "FOLDER"))
    (HERE / "expected.json").write_text(json.dumps(seen, indent=1) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
