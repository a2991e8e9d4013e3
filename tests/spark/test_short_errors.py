"""What a failed query and a failed read print: our sentence first, once, and little else."""

from __future__ import annotations

import os
import re
import sys
import venv
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from tests.spark.differential import Feed
from tests.spark.test_service_errors import COUNTS, Counting

from anabranch import StateService, agg
from anabranch.errors import InvalidArgument
from anabranch.spark import python_check

OURS_CHARACTERS_MAX = 620
"""Before Spark's own lines about the query; a fifth is the name of a file of the test."""

ALL_CHARACTERS_MAX = 1900
FRAMES = re.compile(r'anabranch/(spark|transport|coordinator|durability|worker)/\w+\.py"')


class Raises(Counting):
    """Has a mistake."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        raise ValueError("my own mistake")


class WrongType(Counting):
    """Gives what its schema does not say."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield Row(k=key[0], n="no number")


def failure(df: DataFrame, checkpoint: Path) -> str:
    """What a query's error says."""
    writer = df.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        with pytest.raises(StreamingQueryException):
            query.processAllAvailable()
        return str(query.exception())
    finally:
        query.stop()


def check(text: str, condition: str, sentence: str) -> None:
    """The condition and the sentence are in front, once; then only the user's frames."""
    ours, _, spark = text.partition("=== Streaming Query ===")
    start = ours.index(f"[{condition}] ")
    assert start < 150, ours
    assert ours[start:].startswith(f"[{condition}] {sentence}"), ours
    assert ours.count(sentence) == 1
    assert not FRAMES.search(text), ours
    assert len(ours) < OURS_CHARACTERS_MAX, ours
    assert len(text) < ALL_CHARACTERS_MAX + len(str(Path.cwd()))
    assert bool(spark) == ("SQLSTATE: 38000\n=== S" in text)


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    feed = Feed(spark, tmp_path, "k string, v long")
    feed.add([{"k": key, "v": 1} for key in "abcdefgh"])
    return feed


def damage(location: Path) -> None:
    for file in location.rglob("changelog/*"):
        content = bytearray(file.read_bytes())
        content[:8] = b"no state"
        file.write_bytes(content)


def test_messages(
    spark: SparkSession, feed: Feed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    location, df = tmp_path / "state", feed.stream()
    before = os.umask(0)
    try:
        service = StateService(spark, str(location), workers=2, fsync=False)
    finally:
        os.umask(before)
    with service:
        grouped = service.group_by(df, "k")

        def lines() -> list[str]:
            found = [r.getMessage() for r in caplog.records if "coordinator" in r.name]
            caplog.clear()
            return found

        # User code: its own line stays.
        text = failure(grouped.transformWithState(Raises(), *COUNTS, name="raises"), tmp_path / "a")
        check(text, "STATEFUL_PROCESSOR_FAILED", "Raises.handleInputRows failed for key")
        assert text.count("ValueError: my own mistake") == 1
        assert 'raise ValueError("my own mistake")' in text
        (line,) = lines()
        assert line.startswith("Batch 0 of operator 'raises' failed: Raises.handleInputRows failed")
        assert line.endswith("Fix the processor and restart the query; the batch was not applied.")

        wrong = grouped.transformWithState(WrongType(), *COUNTS, name="wrong")
        text = failure(wrong, tmp_path / "b")
        check(text, "STATEFUL_PROCESSOR_FAILED", "The output column 'n' is declared as int64")
        assert len(lines()) == 1

        old = grouped.aggregate(n=agg.count(), name="again")
        grouped.aggregate(n=agg.count(), name="again")
        text = failure(old, tmp_path / "c")
        check(text, "INVALID_ARGUMENT", "Operator 'again' was defined again after this query")
        assert len(lines()) == 1

        good = grouped.transformWithState(Counting(), *COUNTS, name="good")
        writer = good.writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(tmp_path / "d")).start()
        query.processAllAvailable()
        query.stop()
        assert not lines()
        modes = {oct(p.stat().st_mode & 0o777) for p in location.rglob("*") if p.is_file()}
        assert modes == {"0o600"}
        with pytest.raises(InvalidArgument, match="There is no operator 'nope'") as unknown:
            service.state("nope")
        assert len(str(unknown.value)) < 200
        with pytest.raises(InvalidArgument, match=r"say get\('ab'\)"):
            service.state("good").get_many("ab")
        # Where the mistake is, with what there is.
        with pytest.raises(AnalysisException, match="`nope` to group by") as missing:
            service.group_by(df, "k", "nope")
        assert missing.value.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
        assert "Columns of the stream: k string, v bigint." in str(missing.value)
    damage(location)
    feed.add([{"k": key, "v": 1} for key in "abcdefgh"])
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        good = service.group_by(df, "k").transformWithState(Counting(), *COUNTS, name="good")
        check(failure(good, tmp_path / "d"), "STATE_LOCATION.CORRUPT", "State file ")


def test_failed_reads(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "location-0.1" / "aligned"
    copy = tmp_path / "copy"
    for file in source.rglob("*"):
        if file.is_file():
            target = copy / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())

    def read(place: Path, **options: str) -> Callable[[], object]:
        reader = spark.read.format("anabranch").options(**options)
        return lambda: reader.load(str(place)).collect()

    def said(action: Callable[[], object]) -> str:
        with pytest.raises(PySparkException) as caught:
            action()
        return str(caught.value)

    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False):
        pass  # it makes the format known
    check(said(read(copy)), "INVALID_ARGUMENT", f"{copy} has several operators")
    check(
        said(read(copy, operatorName="nope")),
        "INVALID_ARGUMENT",
        f"{copy} has no operator 'nope'. It has: 'counts'",
    )
    check(said(read(tmp_path / "no")), "STATE_LOCATION.MISMATCH", f"{tmp_path / 'no'} holds no")
    check(said(read(copy, batchId="x")), "INVALID_ARGUMENT", "Option batchId must be a whole")
    damage(copy)
    check(said(read(copy, operatorName="counts")), "STATE_LOCATION.CORRUPT", "State file ")


def test_another_python_of_tasks(
    spark: SparkSession, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said when an operator is defined: the first batch would fail deep inside of Spark."""
    venv.create(tmp_path / "empty", symlinks=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    context = spark.sparkContext
    with monkeypatch.context() as changed:
        changed.delenv("PYTHONPATH")
        changed.setattr(context, "pythonExec", python)
        changed.setattr(python_check, "_checks", weakref.WeakKeyDictionary())
        with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
            grouped = service.group_by(feed.stream(), "k")
            with pytest.raises(InvalidArgument) as caught:
                grouped.aggregate(n=agg.count(), name="n")
    assert f"Spark's tasks run {python}, which has no pyspark" in str(caught.value)
    assert f"Set PYSPARK_PYTHON={sys.executable} in the environment" in str(caught.value)
