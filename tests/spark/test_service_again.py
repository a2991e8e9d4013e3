"""The same query again: in the same process, as in a notebook, and where its state is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from anabranch import StateService


class Counter(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "c long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        state = self._count.get()
        count = (state[0] if state else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(k=key[0], c=count)


def add_rows(folder: Path, *keys: int) -> None:
    source = folder / "input"
    source.mkdir(exist_ok=True)
    number = len(list(source.iterdir()))
    (source / f"{number}.json").write_text("\n".join(json.dumps({"k": k}) for k in keys))


def run_cell(spark: SparkSession, folder: Path) -> dict[int, int]:
    """What a notebook cell does: define, start, wait; the last count of each key."""
    seen: dict[int, int] = {}

    def sink(batch: DataFrame, _: int) -> None:
        seen.update({row.k: row.c for row in batch.collect()})

    df = spark.readStream.schema("k long").json(str(folder / "input"))
    counts = df.groupBy("k").transformWithState(Counter(), "k long, c long", "Update", "None")
    query = (
        counts.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return seen


def test_a_cell_that_runs_again_finds_its_state(spark: SparkSession, tmp_path: Path) -> None:
    with StateService(spark, str(tmp_path / "state")) as service:
        service.enable()
        add_rows(tmp_path, 1, 1, 2)
        assert run_cell(spark, tmp_path) == {1: 2, 2: 1}
        add_rows(tmp_path, 1)
        assert run_cell(spark, tmp_path) == {1: 3}
    with StateService(spark, str(tmp_path / "state")) as service:
        service.enable()
        add_rows(tmp_path, 1, 2)
        assert run_cell(spark, tmp_path) == {1: 4, 2: 2}
    # Another location for the same checkpoint: never a silent start from nothing ...
    with StateService(spark, str(tmp_path / "other")) as service:
        service.enable()
        add_rows(tmp_path, 1)
        with pytest.raises(StreamingQueryException, match="start_empty"):
            run_cell(spark, tmp_path)
    # ... unless that is what is wanted.
    with StateService(spark, str(tmp_path / "other"), start_empty=["Counter"]) as service:
        service.enable()
        assert run_cell(spark, tmp_path) == {1: 1}
