"""A program that starts four event-time queries at once while its core is busy with other things.

Its arguments are a folder and the seconds of the load. It prints what the queries have seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import StateService, agg

QUERIES = 4
LOADS = 12
BUSY = """
import sys, time
sys.stdin.readline()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
"""


def run(service: StateService, spark: SparkSession, folder: Path, names: Sequence[str]) -> Any:
    """All queries, started one after the other without waiting; how much each has seen."""
    df = spark.readStream.schema("k string, t double").json(str(folder / "input"))
    df = df.withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "1 second")
    seen = dict.fromkeys(names, 0)
    queries = []
    for name in names:
        window = agg.tumbling("ts", "5 seconds")
        result = service.group_by(df, "k", window=window).aggregate(
            n=agg.count(), outputMode="append", name=name
        )

        def sink(batch: DataFrame, _: int, name: str = name) -> None:
            seen[name] += 1 + batch.count()

        writer: Any = result.writeStream.foreachBatch(sink).outputMode("append")
        queries.append(writer.option("checkpointLocation", str(folder / name)).start())
    for query in queries:
        query.processAllAvailable()
        query.stop()
    return seen


def main(folder: Path, load_seconds: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Each in a session of its own: Linux may share a core fairly between sessions first.
    busy = [
        subprocess.Popen(
            [sys.executable, "-c", BUSY, load_seconds],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        for _ in range(LOADS)
    ]
    os.nice(10)  # the others stay before all that follows
    (folder / "input").mkdir()
    (folder / "input/0.json").write_text('{"k": "a", "t": 1}\n{"k": "b", "t": 60}')
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    try:
        with StateService(spark, str(folder / "state"), workers=1) as service:
            run(service, spark, folder, ["warm"])  # a new JVM would need all the time for itself
            for process in busy:
                assert process.stdin is not None
                process.stdin.close()  # now they begin
            seen = run(service, spark, folder, [f"query-{at}" for at in range(QUERIES)])
        sys.stdout.write(json.dumps(seen))
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
