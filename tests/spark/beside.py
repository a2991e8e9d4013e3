"""One program as two queries, on Spark's own operators and under `service.enable()`, compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.differential import Batches, Feed, Watched, check_equal, play

from anabranch import StateService

INPUT = "k string, j int, t double, v long, x double, d decimal(12,2), s string, b boolean"

Program = Callable[[DataFrame], DataFrame]
Rows = list[dict[str, Any]]


def timed(stream: DataFrame) -> DataFrame:
    """With event time and a watermark."""
    with_time = stream.withColumn("ts", F.timestamp_seconds("t"))
    return with_time.withWatermark("ts", "6 seconds")


def events(seed: int, batches: int, rows: int, first: int = 0) -> list[Rows]:
    """Rows with nulls, late ones among them; each third batch is empty."""
    chance = random.Random(seed)
    return [
        [_event(chance, batch) for _ in range(0 if batch % 3 == 2 else rows)]
        for batch in range(first, first + batches)
    ]


def _event(chance: random.Random, batch: int) -> dict[str, Any]:
    v = chance.choice([None, *range(-6, 7)])
    return {
        "k": chance.choice(["a", "b", "c", None]),
        "j": batch,
        "t": chance.choice([None, *[30 + 9 * batch + chance.randrange(-40, 20) / 2] * 9]),
        "v": v,
        "x": None if v is None else chance.choice([0.5, -0.0, 0.0, "NaN", float(v)]),
        "d": chance.choice([None, chance.randrange(1000) / 4]),
        "s": chance.choice([None, "", "x", "y", "long text of more than a few characters"]),
        "b": chance.choice([True, False, None]),
    }


class Sides:
    """The same program on both sides, over the same input."""

    def __init__(
        self,
        spark: SparkSession,
        service: StateService,
        folder: Path,
        program: Program,
        output_mode: str,
        **enabled: Any,
    ) -> None:
        self.feed = Feed(spark, folder, INPUT)
        self._service = service
        self._folder = folder
        self._program = program
        self._mode = output_mode
        self._enabled = enabled
        self._batches: Batches = {}
        self.native = Watched(self.program(), folder / "spark", output_mode)
        self.ours = self._start()

    def program(self) -> DataFrame:
        """The program's query, as it is written."""
        return self._program(timed(self.feed.stream()))

    def _start(self) -> Watched:
        self._service.enable(**self._enabled)
        try:
            return Watched(self.program(), self._folder / "ours", self._mode)
        finally:
            self._service.disable()

    def restart(self) -> None:
        """Ours ends and begins again from its checkpoint."""
        self._stop()
        self.ours = self._start()

    def _stop(self) -> None:
        self.ours.query.stop()
        self._batches |= self.ours.batches()

    def play(self, batches: Sequence[Rows]) -> Batches:
        """Batch after batch; all that came out so far is equal."""
        play(self.feed, batches, self.native, self.ours)
        native = self.native.batches()
        check_equal(native, self._batches | self.ours.batches())
        return native

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        self.native.query.stop()
        self._stop()


def check_program(
    spark: SparkSession,
    service: StateService,
    folder: Path,
    program: Program,
    output_mode: str,
    seed: int = 1,
    **enabled: Any,
) -> Batches:
    """Batches, a rescale while the query runs, more batches, a restart, and more batches."""
    enabled = {"strict": True, **enabled}
    with Sides(spark, service, folder, program, output_mode, **enabled) as sides:
        sides.play(events(seed, 3, 40))
        move = service.rescale(3 if len(service.status()["workers"]) == 2 else 2)
        sides.play(events(seed + 1, 2, 40, first=3))
        assert move.wait(60)
        sides.restart()
        return sides.play(events(seed + 2, 3, 40, first=5))
