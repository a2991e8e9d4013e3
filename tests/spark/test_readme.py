"""The Python code of the README and of some pages of the documentation runs as it stands."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
PLACES = (
    "state/orders",
    "state/nexmark",
    "state/visits",
    "checkpoint",
    "checkpoint-visits",
    "clicks",
    "s3://bucket/orders",
)
WAIT = 60
RUNS_FOR_A_MINUTE = "query.awaitTermination(60)\n"


def snippets(page: str, folder: Path) -> list[str]:
    """All of them, with files that go to this folder."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for place in PLACES:
        path = folder / place.replace("s3://", "")
        text = text.replace(f'"{place}"', repr(str(path)))
    found = re.findall(r"^( *)```python\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    return [dedent(code) for _, code in found]


@pytest.fixture
def names(spark: SparkSession) -> Iterator[dict[str, Any]]:
    """What the code has defined; everything that it started is stopped."""
    found: dict[str, Any] = {"__name__": "__main__"}
    yield found
    for query in spark.streams.active:
        query.stop()
    for service in ("service", "large"):
        if service in found:
            found[service].stop()


def wait_for(condition: Callable[[], object], query: Any = None, seconds: float = WAIT) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert query is None or query.isActive, query.exception()
        assert time.monotonic() < limit, "It takes too long."
        time.sleep(0.1)


def undocumented(status: dict[str, Any]) -> set[str]:
    """Fields of status() that the operations guide does not explain."""
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = guide.partition("## What `status()` tells")[2].partition("\n## ")[0]
    known = {word for code in re.findall(r"`(.+?)`", section) for word in re.findall(r"\w+", code)}
    inner = [*status["workers"].values(), *status["operators"].values()]
    batches = [batch for o in status["operators"].values() for batch in o["batches"]]
    parts = [status, *inner, *batches, *(batch["stats"] for batch in batches)]
    return {field for part in parts for field in part} - known


def test_the_code_of_the_readme(spark: SparkSession, tmp_path: Path, names: dict[str, Any]) -> None:
    first, moves = snippets("README.md", tmp_path)
    processor, _ = snippets("docs/operators.md", tmp_path)
    (kept,) = snippets("docs/getting-started.md", tmp_path)
    start, minute, stop = first.partition(RUNS_FOR_A_MINUTE)
    assert minute, "it says in another way how long it runs"
    exec(start, names)
    service = names["service"]
    wait_for(lambda: service.state("totals").get(0))
    assert service.state("totals").get(0).asDict() == {"n": 1, "total": 0}

    exec(processor, names)
    counted: list[tuple[int, int]] = []

    def collect(batch: DataFrame, _: int) -> None:
        counted.extend((row.k, row.c) for row in batch.collect())

    place = str(tmp_path / "checkpoint-counts")
    writer = names["counts"].writeStream.foreachBatch(collect)
    writer.option("checkpointLocation", place).start()
    wait_for(lambda: (0, 1) in counted)

    exec(moves, names)
    assert names["move"].report().outcome == "done"
    assert names["move"].report().groups > 0
    (more,) = snippets("docs/reconfiguration.md", tmp_path)
    exec(more, names)
    assert names["forecast"].moves
    assert names["back"].report().outcome == "done"
    exec(kept, names)
    assert [savepoint.name for savepoint in service.savepoints()] == ["before-upgrade"]
    assert names["large"].status()["workers"]

    status = service.status()
    assert status["operators"]["totals"]["batches"][0]["stats"]
    assert not undocumented(status)

    exec(stop, names)
    assert not service.is_running


def test_the_code_about_workloads(
    spark: SparkSession, tmp_path: Path, names: dict[str, Any]
) -> None:
    (code,) = snippets("docs/workloads.md", tmp_path)
    names["spark"] = spark
    exec(code, names)
    operators = names["service"].status()["operators"]
    assert operators
    name = next(iter(operators))
    wait_for(lambda: names["service"].status()["operators"][name]["rows"])
    assert names["query"].isActive


def test_the_full_example(spark: SparkSession, tmp_path: Path, names: dict[str, Any]) -> None:
    """Duplicates are dropped; a visit ends when the watermark has passed its timer."""
    _, code = snippets("docs/operators.md", tmp_path)
    folder = tmp_path / "clicks"
    folder.mkdir()

    def clicked(*clicks: tuple[str, str, str]) -> None:
        lines = [
            json.dumps(dict(zip(("id", "user", "at"), click, strict=True))) for click in clicks
        ]
        new = tmp_path / "new.json"
        new.write_text("\n".join(lines), encoding="utf-8")
        new.rename(folder / f"{len(list(folder.iterdir()))}.json")

    exec(code, names)
    query = names["query"]
    visit = names["service"].state("visits", "visit")
    timers = names["service"].state("visits", "$timers")
    clicked(
        ("1", "ann", "2026-01-31T12:00:00Z"),
        ("2", "ann", "2026-01-31T12:20:00Z"),
        ("1", "ann", "2026-01-31T12:00:00Z"),
    )
    wait_for(lambda: visit.get("ann"), query, 2 * WAIT)  # three stages and two clocks start
    last = int(datetime(2026, 1, 31, 12, 20, tzinfo=timezone.utc).timestamp() * 1000)
    assert tuple(visit.get("ann")) == (2, last)
    assert timers.get("ann") == [last + names["HOUR"]]
    assert names["service"].state("once", "seen").get("1") is not None
    clicked(("2", "ann", "2026-01-31T12:20:00Z"), ("3", "bob", "2026-01-31T14:00:00Z"))
    wait_for(lambda: visit.get("bob"), query)
    wait_for(lambda: visit.get("ann") is None, query)
    assert not timers.get("ann")
    assert query.isActive
