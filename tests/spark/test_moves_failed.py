"""A query fails in the middle of a batch: moves do not wait for it, and it can go on later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery
from tests.spark.moving import ROWS, WAIT, Sink, first, source

from anabranch import StateService
from anabranch.coordinator import batch_watch as batches

BAD = 1
"""The batch that fails until it is mended."""


class Breaking(StatefulProcessor):
    """Counts rows."""

    def __init__(self, mended: Path) -> None:
        self._mended = mended

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        values = [row.v for row in rows]
        if BAD * ROWS in values and not self._mended.exists():
            raise ValueError("a bad row")
        count = first(self._count.get()) + len(values)
        self._count.update((count,))
        yield Row(k=key[0], n=count)


def test_failed_in_the_middle_of_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("GIVEN_UP_SECONDS", "STUCK_SECONDS"):
        monkeypatch.setattr(batches, limit, 10 * WAIT)  # only Spark can tell
    mended = tmp_path / "mended"
    with StateService(spark, str(tmp_path / "state"), workers=2, key_groups=16) as service:
        counts = service.group_by(source(spark), "k").transformWithState(
            Breaking(mended), "k long, n long", "Append", "None", name="counts"
        )
        sink = Sink()

        def start() -> StreamingQuery:
            checkpoint = str(tmp_path / "checkpoint")
            writer = counts.writeStream.foreachBatch(sink.write)
            return writer.option("checkpointLocation", checkpoint).start()

        query = start()
        try:
            with pytest.raises(StreamingQueryException, match="a bad row"):
                query.awaitTermination(WAIT)
            last = service.status()["operators"]["counts"]["batches"][-1]
            assert (last["epoch"], last["seconds"]) == (BAD, None)
            assert service.rescale(3, strategy="stop-restart").wait(WAIT)
            mended.touch()
            query = start()
            sink.wait_for(query, BAD + 1)
        finally:
            query.stop()
        seen = {key: n for epoch in sorted(sink.rows) for key, n in sink.rows[epoch]}
        assert sum(seen.values()) == len(sink.rows) * ROWS
