"""Names of state: one definition in several queries, reruns, renamed classes; beside Spark's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed

from anabranch import StateService

Counts = dict[int, int]
OUTPUT = "k long, c long"


class Counter(StatefulProcessor):
    def __init__(self, step: int = 1) -> None:
        self._step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "c long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        state = self._count.get()
        count = (state[0] if state else 0) + self._step * sum(1 for _ in rows)
        if key[0] < 0:
            raise ValueError("negative")
        self._count.update((count,))
        yield Row(k=key[0], c=count)


class Renamed(Counter):
    """The same state under another class name."""


class Other(Counter):
    """One more."""


class Program:
    """What a user's program does, on Spark or on the service, and what comes out."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feed = Feed(spark, folder, "k long")
        self.folder = folder

    def add(self, *keys: int) -> None:
        self.feed.add({"k": k} for k in keys)

    def transform(self, processor: StatefulProcessor, df: DataFrame | None = None) -> DataFrame:
        df = self.feed.stream() if df is None else df
        return df.groupBy("k").transformWithState(processor, OUTPUT, "Update", "None")

    def run(self, result: DataFrame, checkpoint: str | None) -> Counts:
        """The last count of each key."""
        return dict(sorted(self.rows(result, checkpoint)))

    def rows(self, result: DataFrame, checkpoint: str | None) -> list[tuple[Any, ...]]:
        """Everything that comes out, batch by batch."""
        seen: list[tuple[Any, ...]] = []

        def sink(batch: DataFrame, _: int) -> None:
            seen.extend(sorted(map(tuple, batch.collect())))

        writer = result.writeStream.foreachBatch(sink).outputMode("update")
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120), "The query does not end."
        finally:
            query.stop()
        return seen


def on_both(
    spark: SparkSession, tmp_path: Path, scenario: Callable[[Program], list[Any]]
) -> tuple[list[Any], list[Any]]:
    """What a scenario gives on Spark's own operators and under `enable()`."""
    native = scenario(Program(spark, tmp_path / "spark"))
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        service.enable()
        ours = scenario(Program(spark, tmp_path / "ours"))
    return native, ours


@pytest.mark.slow
def test_one_definition_is_several_queries(spark: SparkSession, tmp_path: Path) -> None:
    """Two checkpoints, none at all, and again from the first one."""

    def scenario(program: Program) -> list[Any]:
        program.add(1, 1, 2)
        result = program.transform(Counter())
        found = [program.run(result, "first")]
        program.add(1)
        found.append(program.run(result, "second"))
        found.append(program.run(result, None))
        found.append(program.run(program.transform(Counter()), None))
        found.append(program.run(result, "first"))
        program.add(2)
        found.append(program.run(program.transform(Counter()), "second"))
        found.append(program.run(program.transform(Counter()), "first"))
        return found

    native, ours = on_both(spark, tmp_path, scenario)
    assert native == ours
    assert ours[0] == {1: 2, 2: 1}
    assert ours[1] == ours[2] == ours[3] == {1: 3, 2: 1}
    assert ours[4] == {1: 3}
    assert ours[5] == ours[6] == {2: 2}
    # What the queries without checkpoint left is listed, and can be removed.
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        stored = {each.name: each for each in service.stored_state()}
        assert sorted(stored) == ["Counter", "Counter-2", "Counter-3", "Counter-4"]
        assert len({each.query_id for each in stored.values()}) == 4
        service.remove_state("Counter-3")
        assert "Counter-3" not in {each.name for each in service.stored_state()}
        assert stored["Counter-3"].bytes > 0


@pytest.mark.slow
def test_a_first_run_that_failed_leaves_the_name_free(spark: SparkSession, tmp_path: Path) -> None:
    """Under a class's name, and under a name that the program gave."""
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        for at, enabled in enumerate((True, False)):
            program = Program(spark, tmp_path / str(at))
            if enabled:
                service.enable()

            def define(program: Program = program, enabled: bool = enabled) -> DataFrame:
                if enabled:
                    return program.transform(Counter())
                grouped = service.group_by(program.feed.stream(), "k")
                return grouped.transformWithState(
                    Counter(), OUTPUT, "Update", "None", name="named", own_stage=True
                )

            program.add(1, -1)
            result = define()
            with pytest.raises(StreamingQueryException, match="negative"):
                program.run(result, "failed")
            (tmp_path / str(at) / "input" / "000.json").write_text('{"k": 1}')
            assert program.run(result, None) == {1: 1}  # the same DataFrame
            service.disable()
            assert ("Counter", "named")[at] in {each.name for each in service.stored_state()}
        assert {each.name for each in service.stored_state()} == {"Counter", "named"}
        # A name that the program gave keeps the state of its query.
        with pytest.raises(StreamingQueryException, match="remove_state\\('named'\\)"):
            program.run(result, None)


@pytest.mark.slow
def test_two_operators_of_a_class_keep_their_places(spark: SparkSession, tmp_path: Path) -> None:
    """Also if the program defines its queries in another order, which Spark does not see."""

    def chain(program: Program) -> DataFrame:
        first = program.transform(Counter())
        return program.transform(Counter(100), first.select("k"))

    def scenario(program: Program) -> list[Any]:
        program.add(1, 1, 2)
        one, two = chain(program), chain(program)
        found = [program.run(one, "one"), program.run(two, "two")]
        program.add(1)
        two, one = chain(program), chain(program)
        found += [program.run(one, "one"), program.run(two, "two")]
        return found

    native, ours = on_both(spark, tmp_path, scenario)
    assert native == ours == [{1: 100, 2: 100}, {1: 100, 2: 100}, {1: 200}, {1: 200}]
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        names = {each.name for each in service.stored_state()}
    assert names == {"Counter", "Counter-2", "Counter-3", "Counter-4"}


@pytest.mark.slow
def test_a_renamed_class(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(program: Program) -> list[Any]:
        program.add(1, 1, 2)
        found = [program.run(program.transform(Counter()), "checkpoint")]
        program.add(1)
        found.append(program.run(program.transform(Renamed()), "checkpoint"))
        return found

    with caplog.at_level(logging.WARNING, "anabranch.coordinator"):
        native, ours = on_both(spark, tmp_path, scenario)
    assert native == ours == [{1: 2, 2: 1}, {1: 3}]
    assert "'Renamed' goes on with the state of 'Counter'" in caplog.text
    program = Program(spark, tmp_path / "again")
    program.add(1, 2)
    location = str(tmp_path / "named")
    with StateService(spark, location, workers=1, fsync=False) as service:
        grouped = service.group_by(program.feed.stream(), "k")
        result = grouped.transformWithState(Counter(), OUTPUT, "Update", "None", own_stage=True)
        assert program.run(result, "checkpoint") == {1: 1, 2: 1}
    program.add(1)
    with StateService(spark, location, workers=1, fsync=False) as service:
        # The program gave the name: it says how to go on, and nothing is lost.
        grouped = service.group_by(program.feed.stream(), "k")
        result = grouped.transformWithState(Renamed(), OUTPUT, "Update", "None", own_stage=True)
        with pytest.raises(StreamingQueryException, match=r"under 'Counter'.*name='Counter'"):
            program.run(result, "checkpoint")
    with StateService(spark, location, workers=1, fsync=False) as service:
        service.enable(names={"Renamed": "Counter"})
        assert program.run(program.transform(Renamed()), "checkpoint") == {1: 2}
