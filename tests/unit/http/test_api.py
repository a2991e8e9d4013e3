"""What the API answers, over a real connection."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest
from tests.unit.http.scripted import Client, ScriptedService

from anabranch.http import events
from anabranch.http.api import FRESH_SECONDS
from anabranch.http.server import HttpServer
from anabranch.model.journal_entry import EntryKind

RESCALE = {"kind": "rescale", "workers": 3}


def ok(answer: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that is as it should be."""
    assert answer.status_code == status, answer.text
    return answer.json()


def problem(answer: httpx.Response, status: int) -> str:
    """The sentence of a refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    return str(body["detail"])


def test_pictures(reader: Client) -> None:
    assert ok(reader.api("GET", "/status"))["routing_version"] == 4
    assert [each["worker"] for each in ok(reader.api("GET", "/workers"))] == ["w1", "w2"]
    assert ok(reader.api("GET", "/batches", params={"operator": "totals"}))[0]["epoch"] == 7
    assert ok(reader.api("GET", "/savepoints"))[0]["name"] == "before"
    by_bytes = ok(reader.api("GET", "/key-groups", params={"sort": "bytes", "limit": 2}))
    assert [each["group"] for each in by_bytes] == [7, 6]


def test_history(reader: Client) -> None:
    assert ok(reader.api("GET", "/history")) == []
    assert len(ok(reader.api("GET", "/history", params={"since": 0}))) == 2
    (entry,) = ok(reader.api("GET", "/history", params={"since": 0, "kind": "batch"}))
    assert entry["epoch"] == 7


def test_the_autoscaler(reader: Client, operator: Client, service: ScriptedService) -> None:
    told = ok(reader.api("GET", "/autoscale", params={"limit": 3}))
    assert told["decisions"][0]["limit"] == 3
    problem(reader.api("POST", "/autoscale", json={"min": 2}), 403)
    assert service.asked == []
    changed = ok(operator.api("POST", "/autoscale", json={"min": 2.0, "mode": "act"}))
    assert changed["settings"] == {"mode": "act", "min": 2}
    assert service.asked == [("autoscale", {"min": 2, "mode": "act"})]
    wrong = operator.api("POST", "/autoscale", json={"mode": "always"})
    assert "'recommend', 'act'" in problem(wrong, 400)
    assert "not one of" in problem(operator.api("POST", "/autoscale", json={"most": 2}), 400)


def test_a_key(reader: Client) -> None:
    where, place = "/operators/totals/state", {"key_group": 3, "owner": "w1"}
    found = ok(reader.api("GET", where, params={"key": "42"}))
    assert found == {"operator": "totals", "epoch": 7, "value": [{"key": "n", "value": 1}], **place}
    assert ok(reader.api("GET", where, params={"key": '"42"'}))["value"] is None
    assert "JSON" in problem(reader.api("GET", where, params={"key": "{"}), 400)
    assert "missing" in problem(reader.api("GET", where), 400)
    other = reader.api("GET", "/operators/other/state", params={"key": "1"})
    assert "no operator" in problem(other, 400)


def test_many_looks_cost_one(reader: Client, service: ScriptedService) -> None:
    service.looks, started = 0, time.monotonic()
    for _ in range(20):
        ok(reader.api("GET", "/status"))
    assert service.looks <= 2 + (time.monotonic() - started) / FRESH_SECONDS


def test_a_rescale_from_beginning_to_end(operator: Client, service: ScriptedService) -> None:
    begun = ok(operator.api("POST", "/moves", json={**RESCALE, "strategy": "meces"}), 202)
    assert service.asked == [
        ("rescale", {"workers": 3, "strategy": "meces", "cause": "api"}),
    ]
    assert (begun["number"], begun["cause"], begun["is_done"]) == (1, "api", False)
    assert [each["number"] for each in ok(operator.api("GET", "/moves"))] == [1]
    cancelled = ok(operator.api("POST", "/moves/1/cancel"), 202)
    assert cancelled["outcome"] == "It was cancelled."
    assert ok(operator.api("GET", "/moves/1"))["is_done"]
    ok(operator.api("POST", "/moves/1/retarget", json={"workers": 5}), 202)
    assert service.asked[-1] == ("retarget", {"workers": 5, "cause": "api"})


def test_every_kind(operator: Client, service: ScriptedService) -> None:
    for wanted in (
        {"kind": "move", "key_groups": [1, 2], "to": "w2"},
        {"kind": "drain", "worker": "w1"},
        {"kind": "drain", "host": "h1"},
        {"kind": "rebalance"},
        {"kind": "place", "site": "berlin", "on": "rack=3"},
        {"kind": "place", "site": "berlin"},
        {"kind": "rescale", "workers": 3, "hosts": ["h1"], "assignment": "range"},
    ):
        ok(operator.api("POST", "/moves", json=wanted), 202)
        service.asked[-1][1].pop("cause")
        said = {name: value for name, value in wanted.items() if name != "kind"}
        if wanted["kind"] == "place":
            said = {"on": None, **said}
        assert service.asked[-1] == (wanted["kind"], said)


def test_a_standby_is_asked_for_like_the_rest(operator: Client, service: ScriptedService) -> None:
    wanted = {"kind": "standby", "workers": 3, "if_routing_version": 4}
    assert ok(operator.api("POST", "/moves", json={**wanted, "dry_run": True}))["dry_run"]
    assert not service.moves
    stale = {**wanted, "if_routing_version": 3}
    problem(operator.api("POST", "/moves", json=stale), 409)
    ok(operator.api("POST", "/moves", json=wanted), 202)


def test_a_dry_run_begins_nothing(operator: Client, service: ScriptedService) -> None:
    forecast = ok(operator.api("POST", "/moves", json={**RESCALE, "dry_run": True}))
    assert forecast["dry_run"]
    assert forecast["bytes"] == 100
    assert not service.moves


def test_who_asks(operator: Client, service: ScriptedService) -> None:
    headers = {"X-Anabranch-Cause": "command line"}
    ok(operator.api("POST", "/moves", json=RESCALE, headers=headers), 202)
    ok(operator.api("POST", "/moves", json=RESCALE, headers={"X-Anabranch-Cause": "me"}), 202)
    assert [how["cause"] for _, how in service.asked] == ["command line", "api"]


def test_a_stale_routing_is_a_conflict(operator: Client, service: ScriptedService) -> None:
    answer = operator.api("POST", "/moves", json={**RESCALE, "if_routing_version": 3})
    assert problem(answer, 409) == "Look again."
    assert answer.json()["title"] == "RECONFIGURATION_FAILED.STALE_ROUTING"
    assert not service.moves


def test_the_same_key_moves_once(operator: Client, service: ScriptedService) -> None:
    headers = {"Idempotency-Key": "one"}
    first = ok(operator.api("POST", "/moves", json=RESCALE, headers=headers), 202)
    again = ok(operator.api("POST", "/moves", json=RESCALE, headers=headers), 202)
    assert first["number"] == again["number"]
    assert len(service.moves) == 1
    other = operator.api("POST", "/moves", json={"kind": "rebalance"}, headers=headers)
    assert "another request" in problem(other, 422)
    ok(operator.api("POST", "/moves", json=RESCALE, headers={"Idempotency-Key": "two"}), 202)
    assert len(service.moves) == 2


def test_the_same_key_at_the_same_time_moves_once(
    operator: Client, service: ScriptedService
) -> None:
    headers = {"Idempotency-Key": "one"}

    def ask() -> None:
        ok(operator.api("POST", "/moves", json=RESCALE, headers=headers), 202)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(service.moves) == 1


@pytest.mark.parametrize(("then", "is_cancelled"), [("rollback", True), ("continue", False)])
def test_a_limit_of_time(
    operator: Client, service: ScriptedService, then: str, is_cancelled: bool
) -> None:
    wanted = {**RESCALE, "timeout_s": 0.05, "on_timeout": then}
    ok(operator.api("POST", "/moves", json=wanted), 202)
    (move,) = service.moves
    assert move.wait(5 if is_cancelled else 0.5) is is_cancelled


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({}, "must have 'kind'"),
        ({"kind": "grow"}, "one of 'rescale'"),
        ({"kind": "rescale"}, "needs 'workers'"),
        ({"kind": "rebalance", "workers": 3}, "does not take 'workers'"),
        ({"kind": "rescale", "workers": 0}, "from 1 to"),
        ({"kind": "rescale", "workers": True}, "of type integer"),
        ({"kind": "rescale", "workers": 3, "speed": 1}, "not one of"),
        ({"kind": "rescale", "workers": 3, "options": {"wait": True}}, "say it beside them"),
        ({"kind": "rescale", "workers": 65}, "room for 64"),
        ({"kind": "move", "key_groups": [], "to": "w1"}, "elements"),
        ({"kind": "drain", "worker": "w1", "host": "h1"}, "a worker or a host"),
        ({"kind": "rebalance", "on": "h1"}, "does not take 'on'"),
        ([], "of type object"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    operator: Client, service: ScriptedService, wanted: Any, said: str
) -> None:
    assert said in problem(operator.api("POST", "/moves", json=wanted), 400)
    assert not service.moves


def test_what_is_no_request(operator: Client) -> None:
    api = operator.api
    assert "not JSON" in problem(
        api("POST", "/moves", content="{", headers={"Content-Type": "application/json"}), 400
    )
    problem(api("POST", "/moves", content="{}", headers={"Content-Type": "text/plain"}), 415)
    large = json.dumps({"kind": "drain", "worker": "x" * (1 << 20)})
    problem(api("POST", "/moves", content=large, headers={"Content-Type": "application/json"}), 413)
    assert "no parameter" in problem(api("GET", "/status", params={"all": "1"}), 400)
    problem(api("GET", "/key-groups", params={"limit": "0"}), 400)
    problem(api("GET", "/key-groups", params={"limit": "many"}), 400)
    problem(api("GET", "/nothing"), 404)
    problem(api("GET", "/moves/9"), 404)
    problem(api("GET", "/moves/x"), 400)
    problem(api("DELETE", "/status"), 405)


def test_an_error_that_nobody_thought_of_tells_no_secrets(
    operator: Client, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Any:
        raise RuntimeError("/private/path")

    monkeypatch.setattr(service, "savepoints", fail)
    assert "/private" not in problem(operator.api("GET", "/savepoints"), 500)


def test_events(operator: Client, service: ScriptedService) -> None:
    with operator.stream("GET", "/api/v1/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": listening"
        service.happens(EntryKind.WORKER_ENDED, worker="w2", text="killed")
        assert next(line for line in lines if line.startswith("event")) == "event: worker-ended"
        data = next(line for line in lines if line.startswith("data"))
        assert json.loads(data.removeprefix("data: "))["worker"] == "w2"


def test_too_many_listeners_are_refused(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LISTENERS_MAX", 1)
    with operator.stream("GET", "/api/v1/events") as first:
        assert first.status_code == 200
        assert "listen already" in problem(operator.api("GET", "/events"), 503)


def test_metrics(reader: Client, service: ScriptedService) -> None:
    batch = {"operator": "totals", "epoch": 8, "seconds": 0.3, "rows": 100, "apply_ms": 40}
    service.happens(EntryKind.BATCH, **batch)
    ended = {"strategy": "live", "outcome": "failed: x", "cause": "api", "pause_seconds": 0.1}
    service.happens(EntryKind.MOVE_ENDED, bytes=50, details=ended)
    service.happens(EntryKind.WORKER_ENDED, worker="w1")
    lines = reader.get("/metrics").text.splitlines()
    for line in (
        'anabranch_worker_up{worker="w1"} 1.0',
        "anabranch_worker_busy_seconds_total"
        '{activity="applying",operator="totals",worker="w1"} 3.0',
        'anabranch_batch_seconds_count{operator="totals"} 1.0',
        'anabranch_rows_input_total{operator="totals"} 100.0',
        'anabranch_reconfigurations_total{cause="api",outcome="failed",strategy="live"} 1.0',
        "anabranch_moved_bytes_total 50.0",
        'anabranch_worker_stuck_seconds{operator="totals",worker="w2"} 31.5',
        "anabranch_group_skew_ratio 1.5",
        'anabranch_last_epoch{operator="totals"} 7.0',
        'anabranch_last_commit_timestamp_seconds{operator="totals"} 1000.25',
    ):
        assert line in lines


def test_health(server: HttpServer, service: ScriptedService) -> None:
    with Client(server, None) as anyone:
        assert anyone.get("/healthz").status_code == 200
        assert anyone.get("/readyz").status_code == 200


def test_the_document_has_every_route(reader: Client) -> None:
    described = ok(reader.get("/openapi.json"))
    assert described["paths"]["/api/v1/moves"]["post"]["operationId"] == "ask"
    assert set(described["paths"]) >= {"/api/v1/status", "/api/v1/operators/{operator}/state"}
