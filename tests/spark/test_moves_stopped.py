"""A query is stopped in the middle of a batch: moves do not wait for it, and it can go on later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from anabranch import StateService
from anabranch.runtime import batches
from tests.spark.moving import ROWS, WAIT, Sink, first, source

SLOW = 1
"""The batch in which one key takes long."""


class Dawdler(StatefulProcessor):
    """Counts rows, one of them slowly."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        values = [row.v for row in rows]
        if SLOW * ROWS in values:
            time.sleep(2)
        count = first(self._count.get()) + len(values)
        self._count.update((count,))
        yield Row(k=key[0], n=count)


def test_stopped_in_the_middle_of_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("GIVEN_UP_SECONDS", "STUCK_SECONDS"):
        monkeypatch.setattr(batches, limit, 10 * WAIT)  # only Spark can tell
    with StateService(spark, str(tmp_path / "state"), workers=2, key_groups=16) as service:
        counts = service.group_by(source(spark), "k").transformWithState(
            Dawdler(), "k long, n long", "Append", "None", name="counts"
        )
        sink = Sink()

        def start() -> StreamingQuery:
            checkpoint = str(tmp_path / "checkpoint")
            writer = counts.writeStream.foreachBatch(sink.write)
            return writer.option("checkpointLocation", checkpoint).start()

        query = start()
        try:
            sink.wait_for(query, SLOW)
            while (last := service.status()["operators"]["counts"]["batches"][-1])["epoch"] < SLOW:
                time.sleep(0.02)
            query.stop()
            assert last["seconds"] is None
            assert len(sink.rows) == SLOW
            assert service.rescale(3, strategy="stop-restart").wait(WAIT)
            query = start()
            sink.wait_for(query, SLOW + 1)
        finally:
            query.stop()
        seen = {key: n for epoch in sorted(sink.rows) for key, n in sink.rows[epoch]}
        assert sum(seen.values()) == len(sink.rows) * ROWS
