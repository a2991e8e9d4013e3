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

from anabranch import StateService
from anabranch.cli.demo import Sink, compare, orders_query
from anabranch.loadtest.loaded_query import LoadedQuery

FIRST_ROWS = 40_000
ROWS_A_SECOND = 500


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
    location, folder = str(tmp_path / "state"), tmp_path / "query"
    folder.mkdir()
    sink = Sink()
    with (
        StateService(spark, location, workers=2, key_groups=64) as service,
        LoadedQuery(orders_query(spark, service), folder, 0, sink.write) as query,
    ):
        query.burst(FIRST_ROWS, FIRST_ROWS // 4, lambda _: None)
        query.open(ROWS_A_SECOND)
        run_script("walk.mjs", service.url)
        query.drain()
        customers, wrong = compare(sink, query.next_row)
    assert customers
    assert not wrong
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
