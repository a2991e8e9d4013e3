"""The autoscaler of a real service: rows cost waiting, so that capacity grows with workers."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch import StateService
from anabranch.cli.main import main
from anabranch.errors import InvalidArgument
from anabranch.http.client import ServiceClient
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.waiting import Answers, checks_query

WAIT_SECONDS = 150
ROW_SECONDS = 0.01
QUICK = ["--stabilization-interval", "2s", "--scale-down-interval", "8s"]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens go into a folder of the test."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


def until(query: LoadedQuery, what: Callable[[], Any]) -> Any:
    """Wait for something to be there; the query must go on."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := what()):
        query.watch(0.2)
        assert time.monotonic() < deadline, "it did not happen"
    return found


@pytest.mark.soak
@pytest.mark.timeout(420)
def test_a_crowd_comes_and_goes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recommended first, then done, by command; written down with its reasons; nothing is lost."""
    location = str(tmp_path / "state")
    folder = tmp_path / "query"
    folder.mkdir()
    answers = Answers()
    with StateService(spark, location, workers=1, key_groups=32) as service:
        make = checks_query(spark, service, ROW_SECONDS, customers=500)
        with LoadedQuery(make, folder, 0, answers.write) as query:
            query.open(250)  # 2.5 workers' time, 3.6 at 70%
            assert main(["autoscale", location, "--max", "4", *QUICK]) == 0

            def advice() -> list[dict[str, Any]]:
                return [d for d in service.autoscaler()["decisions"] if d["to"] and d["to"] > 1]

            first = until(query, advice)[0]
            assert (first["mode"], first["rule"]) == ("recommend", "up")
            assert first["inputs"]["worker_rows_per_second"] > 20
            assert len(service.status()["workers"]) == 1  # nothing was done

            assert main(["autoscale", location, "--mode", "act", "--explain"]) == 0
            said = capsys.readouterr().out
            assert "act: 1 to 4 workers for workers busy 70% of the time" in said
            assert "arrival_rows_per_second" in said
            until(query, lambda: len(service.status()["workers"]) >= 3)

            query.open(20)
            until(query, lambda: len(service.status()["workers"]) <= 2)
            query.drain()
            assert answers.wrong(query.next_row, customers=500) == 0
        entries = service.history().rows()
        told = [e for e in entries if e["kind"] == "autoscale"]
        moves = [e for e in entries if e["kind"] == "move-started"]
        assert {move["details"]["cause"] for move in moves} == {"autoscaler"}
        assert {"up", "down"} <= {e["details"]["rule"] for e in told}
        assert all(e["text"] and e["details"]["reason"] for e in told)
        client = ServiceClient.of(location)
        with pytest.raises(InvalidArgument, match="swap them"):
            client.post("/autoscale", {"min": 7, "max": 3})
        token = client._token
        request = urllib.request.Request(
            f"{client.endpoint.url}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        metrics = urllib.request.urlopen(request, timeout=30).read().decode()
        assert "anabranch_autoscale_workers_wanted" in metrics
        assert (
            'anabranch_autoscale_decisions_total{action="rescale",mode="act",rule="up"}' in metrics
        )
        assert service.autoscale(mode="off")["mode"] == "off"


def test_settings_of_the_constructor(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no setting 'most'"):
        StateService(spark, str(tmp_path / "a"), autoscale={"most": 3}, http=False)
    with pytest.raises(InvalidArgument, match="must be settings such as"):
        StateService(spark, str(tmp_path / "a"), autoscale=True, http=False)  # type: ignore[arg-type]
    wanted = {"min": 2, "max": 3, "mode": "act"}
    with StateService(spark, str(tmp_path / "b"), autoscale=wanted, http=False) as service:
        assert service.autoscaler()["settings"]["max"] == 3
        assert service.autoscale(max=5)["max"] == 5
        with pytest.raises(InvalidArgument, match="mode must be"):
            service.autoscale(mode="always")
        assert service.autoscaler()["settings"]["mode"] == "act"
