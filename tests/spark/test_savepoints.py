"""Savepoints of running queries, restored with other parallelism, other checkpoints, new fields."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.moving import WAIT, Sink
from tests.spark.tallies import KEYS, ROWS, TALLY, Tally, source, tally_of, values_of

from anabranch import ColumnarProcessor, StateService, agg
from anabranch.cli.main import main
from anabranch.errors import StateMismatch
from anabranch.processor.columnar.api import KeyedBatch, Update


class Query:
    """Two chained operators in one query: rows, then an aggregate of what they say."""

    def __init__(
        self, spark: SparkSession, checkpoint: Path, service: StateService, processor: Any = None
    ) -> None:
        tally = service.group_by(source(spark), "k").transformWithState(
            processor or Tally(), TALLY, "Update", "None", name="tally"
        )
        said = service.group_by(tally, "k").aggregate(
            n=agg.count(), most=agg.max("total"), name="said"
        )
        self.sink = Sink()
        self._writer = (
            said.writeStream.foreachBatch(self.sink.write)
            .outputMode("update")
            .option("checkpointLocation", str(checkpoint))
        )

    def start(self) -> Query:
        self.query = self._writer.start()
        return self

    def batches(self, count: int) -> None:
        self.sink.wait_for(self.query, len(self.sink.rows) + count)

    def stop(self) -> None:
        self.query.stop()
        failure = self.query.exception()
        assert failure is None, failure


def said_of(key: int, batches: int) -> tuple[int, int, int]:
    """Key, batches that had the key, and its total, after so many batches."""
    values = values_of(key, batches)
    return key, len({value // ROWS for value in values}), sum(values)


def expected(batch: int, batches: int) -> list[tuple[int, int, int]]:
    """Outputs of a batch, if there were so many with it."""
    keys = sorted({v * 7 % KEYS for v in range(batch * ROWS, (batch + 1) * ROWS)})
    return [said_of(key, batches) for key in keys]


def check(sink: Sink) -> None:
    for batch, rows in sink.rows.items():
        assert sorted(rows) == expected(batch, batch + 1), f"batch {batch}"


@pytest.fixture(scope="module")
def saved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A location with a savepoint that was taken during a move, and its batch."""
    folder = tmp_path_factory.mktemp("saved")
    with StateService(spark, str(folder / "state"), workers=2, key_groups=32, lanes=2) as service:
        query = Query(spark, folder / "checkpoint", service).start()
        query.batches(3)
        move = service.rescale(3, bytes_per_second=1 << 20)
        savepoint = service.savepoint("before-upgrade")
        assert move.wait(WAIT)
        query.batches(2)
        query.stop()
        check(query.sink)
        assert [s.name for s in service.savepoints()] == ["before-upgrade"]
    (about,) = savepoint.queries.values()
    assert about["operators"] == ["said", "tally"]
    assert [offset["offset"] for offset in about["offsets"]] == [(about["epoch"] + 1) * ROWS]
    assert about["has_checkpoint"]
    assert savepoint.epochs == dict.fromkeys(("said", "tally"), about["epoch"])
    # Nothing but the savepoint is needed.
    shutil.copytree(folder / "state" / "savepoints" / "before-upgrade", folder / "taken")
    shutil.rmtree(folder / "state")
    return folder / "taken", about["epoch"]


def test_goes_on_with_sparks_offsets(
    spark: SparkSession, tmp_path: Path, saved: tuple[Path, int]
) -> None:
    path, epoch = saved
    assert main(["savepoint", "checkpoint", str(path), str(tmp_path / "checkpoint")]) == 0
    location = str(tmp_path / "state")
    with StateService(
        spark, location, workers=3, key_groups=32, lanes=3, restore=str(path)
    ) as service:
        query = Query(spark, tmp_path / "checkpoint", service)
        totals = service.state("tally", "total").read(range(KEYS))
        assert totals == (None, [tally_of(key, epoch + 1)[0] for key in range(KEYS)])
        query.start().batches(2)
        assert service.rescale(1).wait(WAIT)
        query.batches(1)
        query.stop()
    assert min(query.sink.rows) == epoch + 1
    check(query.sink)
    # The program starts again as it is.
    with StateService(
        spark, location, workers=2, key_groups=32, lanes=2, restore=str(path)
    ) as service:
        again = Query(spark, tmp_path / "checkpoint", service).start()
        again.batches(1)
        again.stop()
    check(again.sink)


def test_starts_with_a_new_checkpoint(
    spark: SparkSession, tmp_path: Path, saved: tuple[Path, int]
) -> None:
    path, epoch = saved
    with StateService(
        spark, str(tmp_path / "state"), workers=1, key_groups=32, lanes=1, restore=str(path)
    ) as service:
        query = Query(spark, tmp_path / "checkpoint", service).start()
        query.batches(2)
        query.stop()
    # The source starts at its beginning: its first batches are counted twice.
    for batch, rows in query.sink.rows.items():
        for key, n, most in rows:
            _, n_saved, saved_total = said_of(key, epoch + 1)
            _, n_now, total = said_of(key, batch + 1)
            assert (n, most) == (n_saved + n_now, saved_total + total)


class Longer(Tally):
    """The same with fields and variables that were added since."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "first long, t long, note string")
        self._items = handle.getListState("items", "v long, w string")
        self._parts = handle.getMapState("parts", "r long", "n long, m double")
        self._new = handle.getValueState("new", "x int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        first, total, note = self._total.get() or (None, 0, None)
        assert note in (None, "new")
        assert self._new.exists() == (note == "new")
        for row in rows:
            first = row.v if first is None else first
            total += row.v
            self._items.appendValue((row.v, "new"))
            part = (row.v % 3,)
            count = self._parts.getValue(part)
            assert count is None or count[1] in (None, 0.5)
            self._parts.updateValue(part, ((count[0] if count else 0) + 1, 0.5))
        self._total.update((first, total, "new"))
        self._new.update((1,))
        yield Row(k=key[0], total=total, items=sum(1 for _ in self._items.get()))


def test_fields_are_added(spark: SparkSession, tmp_path: Path, saved: tuple[Path, int]) -> None:
    path, epoch = saved
    assert main(["savepoint", "checkpoint", str(path), str(tmp_path / "checkpoint")]) == 0
    location = str(tmp_path / "state")
    with StateService(spark, location, workers=2, key_groups=32, restore=str(path)) as service:
        query = Query(spark, tmp_path / "checkpoint", service, Longer()).start()
        query.batches(1)
        assert service.rescale(3, strategy="replicate").wait(WAIT)
        query.batches(1)
        query.stop()
        now, found = service.state("tally", "items").read(range(KEYS))
        assert now is not None
        for key, items in enumerate(found):
            values = values_of(key, now + 1)
            is_new = ["new" if v >= (epoch + 1) * ROWS else None for v in values]
            assert items == list(zip(values, is_new, strict=True))
    check(query.sink)
    # Old and new files together, in new workers.
    with StateService(spark, location, workers=1, key_groups=32) as service:
        again = Query(spark, tmp_path / "checkpoint", service, Longer()).start()
        again.batches(1)
        again.stop()
        check(again.sink)
    # Fields that have moved, have gone, and are wider now.
    with StateService(spark, location, workers=2, key_groups=32, backend="rocksdb") as service:
        again = Query(spark, tmp_path / "checkpoint", service, Reshaped()).start()
        again.batches(1)
        assert service.rescale(3).wait(WAIT)
        again.batches(1)
        now, found = service.state("tally", "items").read(range(KEYS))
        again.stop()
        check(again.sink)
        assert now is not None
        assert found == [[(float(v),) for v in values_of(key, now + 1)] for key in range(KEYS)]
    stored = spark.read.format("anabranch").option("stateVarName", "items")
    stored = stored.option("operatorName", "tally").option("flattenCollectionTypes", "false")
    (types,) = {str(row.list_value[0].v.__class__) for row in stored.load(location).collect()}
    assert types == "<class 'float'>"
    narrower = "'items': field 'v' was double, now it is bigint"
    with (
        StateService(spark, location, workers=1, key_groups=32) as service,
        pytest.raises(StateMismatch, match=narrower),
    ):
        define(spark, service, Tally())


class Reshaped(Tally):
    """The same with fields that were moved, removed and widened."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "note string, t double")
        self._items = handle.getListState("items", "v double")
        self._parts = handle.getMapState("parts", "r long", "m double, n double")
        self._new = handle.getValueState("new", "y string, x long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        note, total = self._total.get() or (None, 0.0)
        assert note in ("new", None)
        assert isinstance(total, float)
        assert self._new.get() in ((None, 1), None)
        for row in rows:
            total += row.v
            self._items.appendValue((float(row.v),))
            part = (row.v % 3,)
            more, count = self._parts.getValue(part) or (0.5, 0.0)
            self._parts.updateValue(part, (more, count + 1))
        self._total.update((note, total))
        yield Row(k=key[0], total=int(total), items=sum(1 for _ in self._items.get()))


def define(spark: SparkSession, service: StateService, processor: StatefulProcessor) -> DataFrame:
    return service.group_by(source(spark), "k").transformWithState(
        processor, TALLY, "Update", "None", name="tally"
    )


class Other(Tally):
    """Any state."""

    def __init__(self, total: str = "t long", items: str = "v long", parts: str = "r long") -> None:
        self._schemas = total, items, parts

    def init(self, handle: StatefulProcessorHandle) -> None:
        total, items, parts = self._schemas
        self._total = handle.getValueState("total", total)
        self._items = handle.getListState("items", items)
        if parts:
            self._parts = handle.getMapState("parts", parts, "n long")


REFUSED = [
    (Other(total="t int"), "'total': field 't' was bigint, now it is int"),
    (Other(total="t timestamp"), "'total': field 't' was bigint, now it is timestamp"),
    (Other(items="v long, w int not null"), "the added field 'w' must be nullable"),
    (Other(parts="r string"), "'parts', user_key: stored .*bigint.*now .*string"),
    (Other(parts=""), r"'parts' was removed .*deleteIfExists\('parts'\)"),
]


def state_files(location: Path) -> dict[Path, bytes]:
    """All but the journal, which is written at any time."""
    files = (path for path in location.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.parent.name != "journal"}


def test_everything_else_is_refused(
    spark: SparkSession, tmp_path: Path, saved: tuple[Path, int]
) -> None:
    location = tmp_path / "state"
    with StateService(
        spark, str(location), workers=1, key_groups=32, restore=str(saved[0])
    ) as service:
        before = state_files(location)
        for processor, message in REFUSED:
            with pytest.raises(StateMismatch, match=message):
                define(spark, service, processor)
        rows = source(spark)
        with pytest.raises(StateMismatch, match=r'key: stored .*"k".*now .*"s"'):
            service.group_by(rows, "s").transformWithState(
                Tally(), "s string, total long, items long", "Update", "None", name="tally"
            )
        with pytest.raises(StateMismatch, match=r"'least' was added.*operator of its own"):
            service.group_by(rows, "k").aggregate(
                n=agg.count(), most=agg.max("v"), least=agg.min("v"), name="said"
            )
        with pytest.raises(StateMismatch, match=r"field 'most.max' .int64. was removed"):
            service.group_by(rows, "k").aggregate(n=agg.count(), name="said")
        # Of the last row nothing else is needed.
        service.group_by(rows, "k").aggregate(
            latest=agg.last("s"), n=agg.count(), most=agg.max("v"), name="said"
        )
        assert state_files(location) == before


class Columns(ColumnarProcessor):
    """Counts, and remembers a text; a column was added in front later."""

    def __init__(self, longer: bool) -> None:
        fields = [pa.field("n", pa.int64()), pa.field("text", pa.string())]
        self._longer = longer
        self._schema = pa.schema([pa.field("extra", pa.string()), *fields] if longer else fields)

    @property
    def state_schema(self) -> pa.Schema:
        return self._schema

    def process(self, batch: KeyedBatch) -> Update:
        counts = batch.segments.counts.tolist()
        before = [n or 0 for n in batch.state.column("n").to_pylist()]
        texts = [text or "first" for text in batch.state.column("text").to_pylist()]
        state = {"n": [a + b for a, b in zip(before, counts, strict=True)], "text": texts}
        if self._longer:
            assert set(batch.state.column("extra").to_pylist()) <= {None, "later"}
            state = {"extra": ["later"] * batch.num_keys, **state}
        table = pa.table(state, schema=self._schema)
        output = batch.keys.append_column("n", table.column("n"))
        return Update(state=table, output=output)


def test_columns_are_added(spark: SparkSession, tmp_path: Path) -> None:
    for longer, workers in ((False, 2), (True, 1), (True, 2)):
        with StateService(
            spark, str(tmp_path / "state"), workers=workers, key_groups=32
        ) as service:
            counts = service.group_by(source(spark), "k").process(
                Columns(longer), "k long, n long", name="counts"
            )
            sink = Sink()
            query = (
                counts.writeStream.foreachBatch(sink.write)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            sink.wait_for(query, 2)
            query.stop()
            epoch, found = service.state("counts").read(range(KEYS))
            assert epoch is not None
            for key, row in enumerate(found):
                values = values_of(key, epoch + 1)
                assert (row and (row.n, row.text)) == ((len(values), "first") if values else None)
