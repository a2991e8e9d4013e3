"""Lookups while queries run, move and lose workers: always the state of a committed batch."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.moving import WAIT, Sink
from tests.spark.tallies import (
    KEYS,
    TALLY,
    WINDOW_SECONDS,
    Tally,
    source,
    tally_of,
    window_of,
    windowed_of,
)

from anabranch import StateService, agg
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.migration.strategies import STRATEGIES


class Running:
    """A row operator and a windowed aggregate, in two queries on one service."""

    def __init__(
        self, spark: SparkSession, folder: Path, service: StateService, start: bool = True
    ) -> None:
        self.service = service
        rows = source(spark)
        tally = service.group_by(rows, "k").transformWithState(
            Tally(), TALLY, "Update", "None", name="tally"
        )
        window = agg.tumbling("ts", f"{WINDOW_SECONDS} seconds")
        windows = service.group_by(rows, "k", "s", window=window).aggregate(
            n=agg.count(), total=agg.sum("v"), mean=agg.avg("v"), name="windows"
        )
        self.sinks = Sink(), Sink()
        self._writers = [
            df.writeStream.foreachBatch(sink.write)
            .outputMode("update")
            .option("checkpointLocation", str(folder / f"checkpoint-{n}"))
            for n, (df, sink) in enumerate(((tally, self.sinks[0]), (windows, self.sinks[1])))
        ]

        if start:
            self.start()

    def start(self) -> None:
        self.queries = [writer.start() for writer in self._writers]

    def batches(self, count: int) -> None:
        for query, sink in zip(self.queries, self.sinks, strict=True):
            sink.wait_for(query, len(sink.rows) + count)

    def stop(self) -> None:
        for query in self.queries:
            query.stop()

    def check(self, chance: random.Random) -> None:
        """One lookup of everything; the epoch is at least what the sink has seen."""
        state = self.service.state
        keys = chance.sample(range(KEYS + 5), 20)
        for variable, at in (("total", 0), ("items", 1), ("parts", 2)):
            seen = max(self.sinks[0].rows, default=-1)
            epoch, found = state("tally", variable).read(keys)
            batches = 0 if epoch is None else epoch + 1
            assert batches > seen
            assert found == [tally_of(key, batches)[at] for key in keys], (variable, epoch)
        seen = max(self.sinks[1].rows, default=0)
        start = seen // WINDOW_SECONDS * WINDOW_SECONDS
        asked = [(key, f"s{key % 5}", window_of(start)) for key in keys]
        epoch, found = state("windows").read(asked)
        batches = 0 if epoch is None else epoch + 1
        for key, row in zip(keys, found, strict=True):
            expected = windowed_of(key, start, batches)
            assert (row and (row.n, row.total)) == expected, (key, epoch)
            assert row is None or row.mean == row.total / row.n


class Asking:
    """Checks lookups without a pause, in a thread."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._over = threading.Event()
        self.failure: BaseException | None = None
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        chance = random.Random(1)
        try:
            while not self._over.wait(0.03):
                started = time.monotonic()
                self._running.check(chance)
                self.seconds.append((time.monotonic() - started) / 4)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


def under_load(
    spark: SparkSession, folder: Path, steps: Sequence[Callable[[StateService], None]], **how: Any
) -> Asking:
    with StateService(spark, str(folder / "state"), workers=2, key_groups=32, **how) as service:
        running = Running(spark, folder, service)
        asking = Asking(running)
        try:
            running.batches(2)
            for step in steps:
                step(service)
                running.batches(1)
        finally:
            running.stop()
            asking.end()
        running.check(random.Random(2))  # nothing runs any more
    return asking


def moved(strategy: str) -> Callable[[StateService], None]:
    def step(service: StateService) -> None:
        for workers in (3, 2):
            assert service.rescale(workers, strategy=strategy).wait(WAIT)

    return step


def killed(service: StateService) -> None:
    os.kill(service.status()["workers"]["w1"]["pid"], signal.SIGKILL)


def test_every_answer_is_of_a_committed_batch(spark: SparkSession, tmp_path: Path) -> None:
    asking = under_load(spark, tmp_path, [moved("lazy"), killed])
    assert len(asking.seconds) > 10
    # Restarted, before the first batch.
    with StateService(spark, str(tmp_path / "state"), workers=1, key_groups=32) as service:
        service.group_by(source(spark), "k").transformWithState(
            Tally(), TALLY, "Update", "None", name="tally"
        )
        epoch, found = service.state("tally", "total").read(range(KEYS))
        assert epoch is not None
        assert found == [tally_of(key, epoch + 1)[0] for key in range(KEYS)]
        expect_refusals(service)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    assert under_load(spark, tmp_path, [moved(strategy), killed, moved(strategy)]).seconds


@pytest.mark.parametrize("how", [{"checkpoint": "independent"}, {"backend": "rocksdb"}])
@pytest.mark.soak
def test_other_services(spark: SparkSession, tmp_path: Path, how: dict[str, Any]) -> None:
    """Rows in the place of changes, state in a database: the same answers."""
    assert under_load(spark, tmp_path, [moved("live"), killed, moved("lazy")], **how).seconds
    with StateService(spark, str(tmp_path / "state"), workers=1, key_groups=32, **how) as service:
        Running(spark, tmp_path, service, start=False).check(random.Random(3))
        name = service.savepoint("rows").path
    with StateService(
        spark, str(tmp_path / "again"), workers=1, key_groups=32, restore=name, **how
    ) as service:
        running = Running(spark, tmp_path / "anew", service, start=False)
        found = service.state("tally", "total").get_many(range(KEYS))
        assert all(found)
        if "checkpoint" in how:
            running.start()
            with pytest.raises(StreamingQueryException, match="continues at batch"):
                running.queries[0].awaitTermination(60)
            running.stop()


def expect_refusals(service: StateService) -> None:
    state = service.state("tally", "total")
    wrong: list[tuple[Any, str]] = [
        ("5", r"is \(k bigint\); got '5'"),
        (5.0, "got 5.0"),
        (True, "got True"),
        ((1, 2), r"got \(1, 2\)"),
        ({"x": 1}, "got {'x': 1}"),
        (2**70, "does not fit"),
    ]
    for key, message in wrong:
        with pytest.raises(InvalidArgument, match=message):
            state.get(key)
    assert state.get((5,)) == state.get({"k": 5}) == state.get(5)
    assert state.get(None) is None
    with pytest.raises(InvalidArgument, match=r"no operator 'nothing'.*only: 'tally'"):
        service.state("nothing")
    with pytest.raises(InvalidArgument, match="one of 'total', 'items', 'parts'"):
        service.state("tally")
    with pytest.raises(AnabranchError, match="'sum' is not one of"):
        service.state("tally", "sum")
