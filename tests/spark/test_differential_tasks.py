"""What user code may use of its Spark task is the same on the service as on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark import AccumulatorParam, BarrierTaskContext, SparkContext, SparkFiles, TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.spark.differential import Feed, Watched, both, check_sides, play

from anabranch import StateService

TOLD = "k string, told string"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
METHODS = {"rows": "transformWithState", "pandas": "transformWithStateInPandas"}


class Names(AccumulatorParam[set[str]]):
    """Sets that grow."""

    def zero(self, value: set[str]) -> set[str]:
        return set()

    def addInPlace(self, value1: set[str], value2: set[str]) -> set[str]:
        value1 |= value2
        return value1


class Curious(StatefulProcessor):
    """Uses all that a task has; tells it for each key."""

    def __init__(self, context: SparkContext, word: Any) -> None:
        self.inits = context.accumulator(0)
        self.rows = context.accumulator(0.0)
        self.keys = context.accumulator(set(), Names())
        self.word = word

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.inits += 1
        self._seen = handle.getValueState("seen", "n long")

    def close(self) -> None:
        pass

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.keys += {f"initial {key[0]} {len(initialState)}"}

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        sizes = self.sizes(rows)
        self.rows += sum(sizes)
        self.keys.add({key[0]})
        told = json.dumps({"sizes": sizes, **self.looks()})
        yield self.output(key[0], told)

    def sizes(self, rows: Iterable[Any]) -> list[int]:
        return [sum(1 for _ in rows)]

    def output(self, key: str, told: str) -> Any:
        return Row(k=key, told=told)

    def looks(self) -> dict[str, Any]:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        import added_late  # type: ignore[import-not-found]

        return {
            "batch": batch,
            "query": len(context.getLocalProperty("sql.streaming.queryId") or ""),
            "nothing": context.getLocalProperty("no such property"),
            "numbers": [context.attemptNumber(), context.cpus(), len(context.resources())],
            "place": [type(context.partitionId()).__name__, type(context.stageId()).__name__],
            "word": self.word.value,
            "file": Path(SparkFiles.get(f"{type(self).__name__}-{batch}.txt")).read_text(),
            "module": added_late.WORD,
            "value": _error(lambda: self.rows.value),
            "barrier": _error(BarrierTaskContext.get),
            "session": _error(SparkContext.getOrCreate),
        }


class CuriousFrames(Curious):
    def sizes(self, rows: Iterable[Any]) -> list[int]:
        return [len(frame) for frame in rows]

    def output(self, key: str, told: str) -> Any:
        return pd.DataFrame({"k": [key], "told": [told]})


def _error(work: Any) -> str:
    try:
        work()
    except PySparkException as error:
        return str(error.getCondition())
    return "none"


PROCESSORS = {"rows": Curious, "pandas": CuriousFrames}


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=1, fsync=False) as service:
        yield service


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tests add the same: Spark keeps what was added to the end."""
    path = tmp_path_factory.mktemp("modules") / "added_late.py"
    path.write_text("WORD = 'module'")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("api", ["rows", "pandas"])
def test_what_a_task_has(
    spark: SparkSession, service: StateService, tmp_path: Path, module: Path, api: str
) -> None:
    """Accumulators, files, modules, broadcast variables, the task; rows of a key in parts."""
    context = spark.sparkContext
    files = [tmp_path / f"{PROCESSORS[api].__name__}-{number}.txt" for number in range(2)]
    for file in files:
        file.write_text(file.name)
    context.addPyFile(str(module))
    context.addFile(str(files[0]))
    # Spark's own operator cannot load broadcast variables: it gets the value.
    native = PROCESSORS[api](context, SimpleNamespace(value={"a": "word"}))
    ours = PROCESSORS[api](context, context.broadcast({"a": "word"}))
    feed = Feed(spark, tmp_path, "k string, v long")
    df = feed.stream()
    initial = spark.createDataFrame([("a", 1)] * 5 + [("z", 2)], "k string, v long").groupBy("k")
    arguments = (TOLD, "Update", "None", initial)
    left = getattr(df.groupBy("k"), METHODS[api])(native, *arguments)
    grouped = service.group_by(df, "k")
    right = getattr(grouped, METHODS[api])(ours, *arguments, name=f"curious-{api}", own_stage=True)
    result = both(left, right)
    rows = [{"k": "a", "v": v} for v in range(8)] + [{"k": "b", "v": 1}]
    spark.conf.set(ROWS, "3")  # read when the query starts
    try:
        with Watched(result, tmp_path / "check") as watched:
            spark.conf.set(ROWS, "1")  # this is too late
            play(feed, [rows], watched)
            context.addFile(str(files[1]))
            play(feed, [rows[:5]], watched)
    finally:
        spark.conf.unset(ROWS)
    shown = check_sides(watched)
    calls = 1 if api == "pandas" else 3  # Spark calls again for each part, in the first batch
    assert [len(rows) for rows in shown.values()] == [calls + 1, 1]
    assert ("[3, 3, 2]" in "".join(shown[0])) == (api == "pandas")
    assert ("[3, 2]" in shown[1][0]) == (api == "pandas")
    for name in ("inits", "rows", "keys"):
        assert getattr(ours, name).value == getattr(native, name).value, name
    assert ours.inits.value == 4
    assert ours.rows.value == 14
    assert ours.keys.value >= {"a", "b"}


class Sizes(StatefulProcessor):
    """How many rows come at a time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"k": [key[0]], "told": [repr([len(frame) for frame in rows])]})


def test_bytes_of_a_frame(spark: SparkSession, service: StateService, tmp_path: Path) -> None:
    """Whichever limit is reached first; none of rows."""
    feed = Feed(spark, tmp_path, "k string, v long, w string")
    df = feed.stream()
    native = df.groupBy("k").transformWithStateInPandas(Sizes(), TOLD, "Update", "None")
    grouped = service.group_by(df, "k")
    rows = [{"k": k, "v": v, "w": "x" * 80} for k in ("a", "b") for v in range(12)]
    for at, (records, size) in enumerate((("0", "510"), ("-1", "1"), ("2", "1k"))):
        ours = grouped.transformWithStateInPandas(
            Sizes(), TOLD, "Update", "None", name=f"sizes{at}", own_stage=True
        )
        spark.conf.set(ROWS, records)
        spark.conf.set(BYTES, size)
        try:
            with Watched(both(native, ours), tmp_path / f"check{at}") as watched:
                if at == 0:
                    feed.add(rows)
                watched.query.processAllAvailable()
        finally:
            spark.conf.unset(ROWS)
            spark.conf.unset(BYTES)
        shown = "".join(check_sides(watched)[0])
        assert ("[6, 6]", "[1, 1,", "[2, 2,")[at] in shown


class Storing(StatefulProcessor):
    """State with a field that cannot be null; outputs of one column that cannot."""

    def __init__(self, output: str | None = "x", nullable: bool = False) -> None:
        self._output = output
        self._nullable = nullable

    def init(self, handle: StatefulProcessorHandle) -> None:
        schema = StructType([StructField("n", LongType(), self._nullable)])
        self._state = handle.getValueState("kept", schema)

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        if isinstance(next(rows), Row):
            yield Row(k=key[0], told=self._output)
        else:
            yield pd.DataFrame({"k": [key[0]], "told": [self._output]})
        self._state.update((1,))


@pytest.fixture
def df(spark: SparkSession, tmp_path: Path) -> DataFrame:
    feed = Feed(spark, tmp_path, "k string")
    feed.add([{"k": "a"}])
    return feed.stream()


def failure(df: DataFrame, checkpoint: Path, collect: Any = DataFrame.collect) -> str:
    """The error of the query's first batch, with all its causes."""
    with (
        pytest.raises(StreamingQueryException) as caught,
        Watched(df, checkpoint, collect=collect) as watched,
    ):
        watched.query.processAllAvailable()
    said = [str(caught.value)]
    cause = watched.query._jsq.exception().get().getCause()
    while cause is not None:
        said.append(str(cause.getMessage()))
        cause = cause.getCause()
    return "\n".join(said)


def test_state_that_cannot_be_null(
    spark: SparkSession, service: StateService, tmp_path: Path, df: DataFrame
) -> None:
    """Refused in the first batch, and under Avro only."""
    native = df.groupBy("k").transformWithState(Storing(), TOLD, "Update", "None")
    grouped = service.group_by(df, "k")
    ours = {
        api: getattr(grouped, METHODS[api])(Storing(), TOLD, "Update", "None", name=f"kept-{api}")
        for api in METHODS
    }
    spark.conf.set(ENCODING, "avro")
    try:
        for name, result in {"spark": native, **ours}.items():
            said = failure(result, tmp_path / name)
            assert "[TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE]" in said, name
            assert "column family kept must be nullable" in said, name
    finally:
        spark.conf.unset(ENCODING)
    arguments = (Storing(), TOLD, "Update", "None")
    plain = grouped.transformWithState(*arguments, name="kept")
    with Watched(plain, tmp_path / "plain") as watched:
        watched.query.processAllAvailable()
    assert watched.rows[0] == [Row(k="a", told="x")]


@pytest.mark.parametrize("api", ["rows", "pandas"])
def test_null_in_an_output_that_cannot_be_null(
    service: StateService, tmp_path: Path, df: DataFrame, api: str
) -> None:
    """Spark lets it pass, and its optimizer believes the schema; here it is an error."""
    schema = StructType(
        [StructField("k", StringType(), False), StructField("told", StringType(), False)]
    )
    result = getattr(service.group_by(df, "k"), METHODS[api])(
        Storing(None, nullable=True), schema, "Update", "None", name=f"null-{api}"
    )
    said = failure(result, tmp_path / "check")
    assert "NULL value appeared in the non-nullable output column 'told'" in said
    assert f"operator 'null-{api}'" in said
    assert "make the column nullable in outputStructType" in said


def test_foreach_batch_that_leaves_rows_out(
    service: StateService, tmp_path: Path, df: DataFrame
) -> None:
    """It fails in that batch, before Spark commits it; the batch can run again."""
    kept = Storing(nullable=True)
    native = df.groupBy("k").transformWithState(kept, TOLD, "Update", "None")
    result = service.group_by(df, "k").transformWithState(
        kept, TOLD, "Update", "None", name="unused"
    )
    ours = result.where("k is not null")

    def nothing(batch: DataFrame) -> list[Row]:
        return []

    said = failure(native, tmp_path / "spark", nothing)
    assert "STATE_STORE_COMMIT_VALIDATION_FAILED" in said
    said = failure(ours, tmp_path / "ours", nothing)
    assert not (tmp_path / "ours" / "commits" / "0").exists()
    assert "foreachBatch did not process all of batch 0" in said
    assert "operator 'unused'" in said
    with Watched(ours, tmp_path / "ours") as watched:
        watched.query.processAllAvailable()
    assert watched.rows == {0: [Row(k="a", told="x")]}
