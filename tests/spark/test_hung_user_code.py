"""A processor that hangs under Spark: said, shown, stopped, killed; in the end as without it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed, Watched, wait_for

from anabranch import StateService
from anabranch.cli.main import main
from anabranch.coordinator import user_code_monitor

BATCHES = [["a", "b", "a"], ["b", "c"], ["hung", "a", "d"], ["hung", "d"]]


class Counts(StatefulProcessor):
    """Counts rows; a key hangs as long as a file is there."""

    def __init__(self, flag: Path) -> None:
        self._flag = str(flag)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        if key[0] == "hung" and Path(self._flag).exists():
            self.never_comes_back()
        yield Row(k=key[0], n=count)

    def never_comes_back(self) -> None:
        threading.Event().wait()


def oracle() -> list[list[tuple[str, int]]]:
    counts: Counter[str] = Counter()
    found = []
    for batch in BATCHES:
        counts.update(batch)
        found.append(sorted((key, counts[key]) for key in set(batch)))
    return found


@pytest.mark.slow
def test_a_hung_processor(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_code_monitor, "STUCK_SECONDS", 2.0)
    caplog.set_level(logging.WARNING)
    flag, check = tmp_path / "flag", tmp_path / "check"
    feed = Feed(spark, tmp_path, "k string")
    seen: dict[int, list[tuple[str, int]]] = {}

    def note(batch_rows: dict[int, list[Row]]) -> None:
        for epoch, rows in batch_rows.items():
            seen[epoch] = sorted((row.k, row.n) for row in rows)

    def define(service: StateService) -> DataFrame:
        return service.group_by(feed.stream(), "k").transformWithState(
            Counts(flag), "k string, n long", "Update", "None", name="counts"
        )

    def add(number: int) -> None:
        feed.add([{"k": key} for key in BATCHES[number]])

    def stuck(service: StateService) -> dict[str, Any]:
        workers = service.status()["workers"].items()
        return {worker: shown["stuck"][0] for worker, shown in workers if shown["stuck"]}

    def told_by_status() -> str:
        """What `anabranch status` says of calls that hang."""
        assert main(["status", str(tmp_path / "state")]) == 0
        lines = capsys.readouterr().out.splitlines()
        return "\n".join(line for line in lines if "user code has not come back since" in line)

    with StateService(spark, str(tmp_path / "state"), workers=2, fsync=False) as service:
        with Watched(define(service), check) as watched:
            for number in (0, 1):
                add(number)
                watched.query.processAllAvailable()
            flag.touch()
            add(2)
            wait_for(lambda: bool(stuck(service)), watched)
            ((worker, call),) = stuck(service).items()
            assert (call["operator"], call["key"], call["epoch"]) == ("counts", "('hung',)", 2)
            assert "never_comes_back" in call["stack"]
            wait_for(lambda: "has not come back" in caplog.text, watched)
            for part in (worker, "'counts'", "('hung',)", "never_comes_back"):
                assert part in caplog.text
            wait_for(lambda: worker in told_by_status(), watched)
            assert "'counts', Counts.handleInputRows, key ('hung',), batch 2" in told_by_status()
            # A crash in the middle of it: the batch hangs again, in the next process.
            os.kill(service.status()["workers"][worker]["pid"], signal.SIGKILL)
            wait_for(lambda: service.status()["workers"][worker]["restarts"] == 1, watched)
            wait_for(lambda: bool(stuck(service)), watched)
        note(watched.rows)
        # The query has ended: nobody waits for its user code.
        began = time.monotonic()
        result = define(service)
        assert time.monotonic() - began < 20
        wait_for(lambda: service.status()["workers"][worker]["restarts"] == 2, watched)
        flag.unlink()
        with Watched(result, check) as watched:
            watched.query.processAllAvailable()
            note(watched.rows)
            # Stopped in the middle, and not defined again: its worker is replaced all the same.
            flag.touch()
            add(3)
            wait_for(lambda: bool(stuck(service)), watched)
        ended, seconds = watched, time.monotonic()
        wait_for(lambda: service.status()["workers"][worker]["restarts"] == 3, ended)
        assert time.monotonic() - seconds < 60
        service.recycle(worker)
        assert service.status()["workers"][worker]["status"] == "up"
    location = str(tmp_path / "state")
    with StateService(spark, location, fsync=False, user_code_timeout_s=2) as service:
        result = define(service)
        fails = pytest.raises(StreamingQueryException, match="user_code_timeout_s is 2")
        with Watched(result, check) as watched, fails:
            watched.query.awaitTermination(120)
        flag.unlink()
        with Watched(result, check) as watched:
            watched.query.processAllAvailable()
            note(watched.rows)
    assert [seen[epoch] for epoch in sorted(seen)] == oracle()
