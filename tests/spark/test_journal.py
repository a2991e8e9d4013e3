"""What a service of a real query writes down, and the same service seen and told from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from tests.spark.moving import Sink
from tests.spark.tallies import TALLY, Tally, source

from anabranch import StateService, agg
from anabranch.cli.main import main
from anabranch.durability.blobs import BlobStore
from anabranch.durability.journal import JournalFolder
from anabranch.durability.store import StateStore
from anabranch.errors import InvalidArgument, ServiceUnavailable
from anabranch.http.client import ServiceClient
from anabranch.http.recovery import recovery
from anabranch.http.stored import StoredService
from anabranch.http.tape import tape
from anabranch.http.top_rows import top_rows
from anabranch.model.ownership import Owned


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Tokens go into a folder of the test, and nothing is left there."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    assert not list(folder.glob("*/*"))


def until(location: Path, kind: str, **fields: Any) -> list[dict[str, Any]]:
    """All entries, as soon as there is one of this kind with these fields."""
    deadline = time.monotonic() + 60
    while True:
        rows = JournalFolder(BlobStore(str(location))).read().rows()
        for row in rows:
            if row["kind"] == kind and fields.items() <= row.items():
                return rows
        assert time.monotonic() < deadline, rows
        time.sleep(0.1)


@pytest.mark.slow
def test_seen_and_told_from_outside(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    location = tmp_path / "state"
    where = str(location)
    with StateService(spark, where, workers=2, key_groups=8) as service:
        sink = Sink()
        said = service.group_by(source(spark), "k").aggregate(n=agg.count(), name="said")
        query = (
            said.writeStream.foreachBatch(sink.write)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        sink.wait_for(query, 2)
        assert main(["rescale", where, "3", "--yes", "--wait", "--timeout", "2m"]) == 0
        assert list(service.status()["workers"]) == ["w1", "w2", "w3"]
        os.kill(service.status()["workers"]["w2"]["pid"], signal.SIGKILL)
        until(location, "worker-ended", worker="w2")
        sink.wait_for(query, len(sink.rows) + 2)
        service.savepoint("before")
        client = ServiceClient.of(where)
        found = client.get("/operators/said/state", key="7")
        assert found["value"]["n"] > 0
        capsys.readouterr()
        assert main(["state", "get", where, "7", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["value"]["n"] > 0
        assert main(["watch", where, "--once"]) == 0
        assert "3 of 3 workers up" in capsys.readouterr().out
        assert main(["savepoint", "create", where, "asked", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == "asked"
        progress = service.progress(query)
        assert progress.operators["said"]["numRowsTotal"] > 0
        assert "rowsInput" in progress.operators["said"]
        shown = service._repr_html_()
        assert "Time of each batch" in shown
        assert "signal 9" in shown
        assert "key groups moved" in service.recent_moves()[0]._repr_html_()
        assert client.get("/moves")[-1]["cause"] == "command line"
        assert sum(each["rows"] for each in client.get("/key-groups")) > 0
        assert main(["status", where]) == 0
        told = capsys.readouterr().out
        assert "running (process" in told
        assert "w3: up" in told
        with urllib.request.urlopen(f"{client.endpoint.url}/readyz") as ready:
            assert ready.status == 200
        port = int(client.endpoint.url.rpartition(":")[2])
        query.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert not (location / "endpoint.json").exists()
    rows = until(location, "service-stopped")
    (death,) = (row for row in rows if row["kind"] == "worker-ended")
    assert "signal 9" in death["text"]
    (ended,) = (row for row in rows if row["kind"] == "move-ended")
    assert ended["details"]["workers_after"] == ["w1", "w2", "w3"]
    assert ended["details"]["cause"] == "command line"
    batches = [row for row in rows if row["kind"] == "batch"]
    assert [row["epoch"] for row in batches] == list(range(len(batches)))
    assert all(row["seconds"] > 0 and row["operator"] == "said" for row in batches)
    assert sum(row["rows"] for row in batches) > 0
    assert [row["text"] for row in rows if row["kind"] == "savepoint"] == ["before", "asked"]
    capsys.readouterr()
    assert main(["state", "get", where, "7", "--json"]) == 0  # nothing runs: what is stored
    assert json.loads(capsys.readouterr().out)["value"]
    page = tmp_path / "incident.html"
    assert main(["report", where, "-o", str(page)]) == 0
    text = page.read_text()
    assert "live: 2 to 3 workers" in text
    assert "signal 9" in text
    assert "stopped in order" in text
    check_looking_back(location)


def check_looking_back(location: Path) -> None:
    """The page of a service that has ended, from what it has left."""
    store = StateStore(str(location)).look()
    stored = StoredService(store)
    status = stored.status()
    assert list(status["workers"]) == ["w1", "w2", "w3"]
    assert {each["status"] for each in status["workers"].values()} == {"gone"}
    assert status["operators"]["said"]["last_epoch"] == store.latest_epoch("said")
    told = tape(stored.history(0), 0)
    first = Owned.of(told["ownership"][:1])
    assert set(first.owners) == {"w1", "w2"}
    assert Owned.of(told["ownership"]).owners.count("w3") == 2
    assert [move["outcome"] for move in told["moves"]] == ["done"]
    live = stored.state("said")
    epoch, (value, nothing) = live.read([7, 1_000_000])
    group, owner = live.locate(7)
    assert (epoch, nothing) == (store.latest_epoch("said"), None)
    assert value["n"]["count"] > 0
    assert owner == Owned.of(told["ownership"]).owners[group or 0]
    assert live.locate(1_000_000) == (None, None)
    top = top_rows(store.blobs, "said", None, None, 3)
    assert (top["by"], top["is_complete"], len(top["rows"])) == ("n.count", True, 3)
    assert top["rows"][0]["n.count"] >= top["rows"][1]["n.count"] >= value["n"]["count"]
    with pytest.raises(InvalidArgument, match="no column 'k'"):
        top_rows(store.blobs, "said", None, "k", 3)
    (kept,) = recovery(store.blobs, status)
    assert kept["last_epoch"] == kept["epochs"][-1] == epoch
    assert kept["changelogs"]["files"] > 0
    with pytest.raises(ServiceUnavailable, match="No service runs"):
        stored.rescale(3)


class Failing(Tally):
    """User code that raises."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        raise ValueError("no such value")


@pytest.mark.slow
def test_a_failed_batch_is_written_down(spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "state"
    with StateService(spark, str(location), workers=1, key_groups=8, http=False) as service:
        assert not (location / "endpoint.json").exists()
        said = service.group_by(source(spark), "k").transformWithState(
            Failing(), TALLY, "Update", "None", name="said"
        )
        query = said.writeStream.format("noop").outputMode("update")
        started = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(StreamingQueryException):
            started.awaitTermination(60)
        (failed,) = (row for row in until(location, "batch-failed") if "epoch" in row)
    assert (failed["operator"], failed["epoch"]) == ("said", 0)
    assert "no such value" in failed["text"]


DRIVER = """
import os, sys, time
from pyspark.sql import SparkSession
from anabranch import StateService
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
service = StateService(spark, sys.argv[1], workers=1, key_groups=8)
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blow", "said"),
    [
        (signal.SIGKILL, "died at"),
        pytest.param(signal.SIGINT, "stopped in order", marks=pytest.mark.soak),
    ],
)
def test_status_of_a_dead_driver_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    blow: signal.Signals,
    said: str,
) -> None:
    """Whatever ended it: no file says that it runs."""
    where = str(tmp_path / "state")
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, where], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"up\n"
        assert main(["status", where]) == 0
        driver.send_signal(blow)
        driver.wait(60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(60)
        assert driver.stdout is not None
        driver.stdout.close()
    capsys.readouterr()
    assert main(["status", where]) == 3
    assert said in capsys.readouterr().out
    assert main(["rescale", where, "2", "--yes"]) == 3
    with StateStore(where):
        pass  # free for the next one
    for left in Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*"):
        left.unlink()  # of the killed one: the next service would remove it
        assert blow == signal.SIGKILL
