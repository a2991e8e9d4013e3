"""A person's path through every page: a rescale under load, a cancel, a death, and the replay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.page.browser import needs_browser, run_script
from tests.page.load import Totals, orders

from anabranch import StateService


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens go into a folder of the test."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


@needs_browser()
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_person_walks_through_every_page(spark: SparkSession, tmp_path: Path) -> None:
    location, totals = str(tmp_path / "state"), Totals()
    with StateService(spark, location, workers=2, key_groups=64) as service:
        query = (
            orders(spark, service)
            .writeStream.foreachBatch(totals.write)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0.4 seconds")
            .start()
        )
        try:
            run_script("walk.mjs", service.url)
            assert query.exception() is None
        finally:
            query.stop()
    assert totals.batches > 10
    assert totals.of == totals.expected()
    with replaying(location) as url:
        run_script("replay.mjs", url)


@contextmanager
def replaying(location: str) -> Iterator[str]:
    """`anabranch ui` on a location without a service, until Ctrl-C; its link."""
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli.main", "ui", location],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert "Nothing runs on" in said
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()
