"""Metrics as a real Prometheus reads them; the dashboard and the alerts ask for what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.http.scripted import Client, ScriptedService, tokens_of

from anabranch.cli.main import main
from anabranch.cli.monitoring import text_of
from anabranch.coordinator.move_handle import CANCELLED
from anabranch.http.server import HttpServer
from anabranch.model.journal_entry import EntryKind

PATIENCE_SECONDS = 90.0
PROMISED = (
    *("worker_busy_seconds_total", "worker_up", "worker_restarts_total", "state_rows"),
    *("state_bytes", "batch_seconds", "batch_phase_seconds", "rows_input_total"),
    *("rows_late_total", "last_epoch", "last_commit_timestamp_seconds", "reconfigurations_total"),
    *("reconfiguration_pause_seconds", "moved_bytes_total", "group_skew_ratio"),
    "source_lag_rows",
)
"""Without the beginning `anabranch_`: what people may build on."""
needs_prometheus = pytest.mark.skipif(
    None in (shutil.which("prometheus"), shutil.which("promtool")),
    reason="Prometheus is not installed: apt-get install prometheus",
)


@pytest.fixture
def busy(service: ScriptedService, server: HttpServer) -> ScriptedService:
    """Everything that has a metric has happened."""
    batch = {"operator": "totals", "epoch": 8, "seconds": 0.3, "rows": 100, "apply_ms": 40}
    service.happens(EntryKind.BATCH, **batch, details={"rows_dropped_late": 2})
    service.happens(EntryKind.BATCH_FAILED, operator="totals")
    about = {"strategy": "live", "outcome": "done", "cause": "page", "pause_seconds": 0.1}
    service.happens(EntryKind.MOVE_ENDED, bytes=50, details=about)
    service.happens(EntryKind.WORKER_ENDED, worker="w1")
    return service


def names_in(text: str) -> set[str]:
    """Of metrics."""
    return set(re.findall(r"\banabranch_\w+", text))


def samples(text: str) -> set[str]:
    """Names of series."""
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


def test_all_that_is_promised_is_there(busy: ScriptedService, reader: Client) -> None:
    described = names_in(
        "\n".join(
            line for line in reader.get("/metrics").text.splitlines() if line.startswith("# TYPE")
        )
    )
    counters = {f"{name}_total" for name in described} | described
    assert not {f"anabranch_{name}" for name in PROMISED} - counters


def test_labels_never_name_a_key_group(busy: ScriptedService, reader: Client) -> None:
    labels = set(re.findall(r'[{,](\w+)="', reader.get("/metrics").text))
    assert labels == {
        *("operator", "worker", "activity", "phase", "le", "strategy", "outcome", "cause")
    }


def test_what_somebody_wrote_makes_no_series(
    server: HttpServer, service: ScriptedService, reader: Client
) -> None:
    for number in range(50):
        about = {"strategy": "live", "outcome": f"failed: {number}", "cause": f"me {number}"}
        service.happens(EntryKind.MOVE_ENDED, details=about)
    cancelled = {"strategy": "live", "outcome": CANCELLED, "cause": "autoscaler: lag grows"}
    service.happens(EntryKind.MOVE_ENDED, details=cancelled)
    lines = [
        line
        for line in reader.get("/metrics").text.splitlines()
        if line.startswith("anabranch_reconfigurations_total")
    ]
    assert sorted(lines) == [
        'anabranch_reconfigurations_total{cause="autoscaler",outcome="cancelled",strategy="live"}'
        " 1.0",
        'anabranch_reconfigurations_total{cause="other",outcome="failed",strategy="live"} 50.0',
    ]


@pytest.mark.parametrize("what", ["alerts", "dashboard"])
def test_they_ask_for_what_there_is(busy: ScriptedService, reader: Client, what: str) -> None:
    asked = names_in(text_of(what))
    assert len(asked) >= 5
    assert not asked - samples(reader.get("/metrics").text)


def test_the_dashboard_is_whole() -> None:
    board = json.loads(text_of("dashboard"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert {f"anabranch_{name}" for name in PROMISED if not name.endswith("_seconds")} - names_in(
        " ".join(asked)
    ) <= {"anabranch_worker_restarts_total"}
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(places) == len(set(places))


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitoring", "alerts"]) == 0
    assert capsys.readouterr().out == text_of("alerts")


# -- Prometheus --


@needs_prometheus
def test_promtool_finds_nothing_wrong(
    busy: ScriptedService, reader: Client, tmp_path: Path
) -> None:
    text = reader.get("/metrics").text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    rules = tmp_path / "alerts.yaml"
    rules.write_text(text_of("alerts"))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(rules)], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "10 rules found" in checked.stdout


class Prometheus:
    """A server that scrapes one target."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str, **query: str) -> Any:
        asked = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with self._opener.open(asked, timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def wait_for(self, expression: str) -> list[Any]:
        """Its value, as soon as it has one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found: list[Any] = self.ask("query", query=expression)["result"]
            except OSError:
                found = []
            if found:
                return found
            assert time.monotonic() < deadline, f"{expression} has no value"
            time.sleep(0.2)


@contextmanager
def scraping(server: HttpServer, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with our rules, on a port of its own."""
    token, rules, config = (folder / name for name in ("token", "alerts.yaml", "config.yaml"))
    token.write_text(tokens_of(server)["reader"])
    rules.write_text(text_of("alerts"))
    target = server.endpoint.url.removeprefix("http://")
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{rules}']\n"
        "scrape_configs:\n"
        "  - job_name: anabranch\n"
        f"    authorization: {{credentials_file: '{token}'}}\n"
        f"    static_configs: [{{targets: ['{target}']}}]\n"
    )
    port = free_port()
    words = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@needs_prometheus
@pytest.mark.slow
def test_a_real_prometheus(busy: ScriptedService, server: HttpServer, tmp_path: Path) -> None:
    with scraping(server, tmp_path) as prometheus:
        (up,) = prometheus.wait_for('up{job="anabranch"} == 1')
        assert up["value"][1] == "1"
        (ahead,) = prometheus.wait_for("anabranch_source_lag_rows")
        assert (ahead["metric"]["operator"], ahead["value"][1]) == ("totals", "12")
        known = set(prometheus.ask("label/__name__/values"))
        assert not (names_in(text_of("alerts")) | names_in(text_of("dashboard"))) - known
        board = json.loads(text_of("dashboard"))
        for panel in board["panels"]:
            for target in panel["targets"]:
                asked = target["expr"].replace("$__rate_interval", "1m")
                asked = asked.replace("$job", ".*").replace("$operator", ".*")
                assert isinstance(prometheus.ask("query", query=asked)["result"], list)
        groups = prometheus.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) == 10
        assert not [rule["name"] for rule in rules if rule["health"] == "err"]
