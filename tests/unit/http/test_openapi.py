"""The document promises what the server does: schemathesis makes requests up from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup
from tests.unit.http.scripted import Client, tokens_of

from anabranch.http import door, guard
from anabranch.http.server import HttpServer

EXAMPLES = 12
LEFT_OUT = {
    # What the document allows may be refused too: a worker that does not exist, say.
    "positive_data_acceptance",
    # The guard is asked first: a method that no route has is 403 or 405.
    "unsupported_method",
    "ignored_auth",  # without its own requests: test_guard does it on every route
}


@contextmanager
def without_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of the number of requests in a second."""
    monkeypatch.setattr(guard, "REQUESTS_A_SECOND", 1e9)
    monkeypatch.setattr(door, "A_SECOND", 1e9)
    yield


def try_out(
    described: dict[str, Any], server: HttpServer, seen: set[tuple[str, int]] | None = None
) -> None:
    """Ask for everything that the document allows, and compare with what it promises."""
    schema = schemathesis.openapi.from_dict(described)
    headers = {"Authorization": f"Bearer {tokens_of(server)['operator']}"}
    checks: list[Any] = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]

    def ask(operation: Any) -> None:
        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def each(case: Any) -> None:
            answer = case.call(base_url=server.endpoint.url, headers=headers)
            if seen is not None:
                seen.add((operation.label, answer.status_code))
            assert answer.status_code < 500, answer.text
            case.validate_response(answer, checks=checks, headers=headers)

        each()

    operations: Any = schema.get_all_operations()
    for found in operations:
        ask(found.ok())


@pytest.mark.slow
def test_nobody_is_surprised(
    server: HttpServer, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = operator.get("/openapi.json").json()
    seen: set[tuple[str, int]] = set()
    with without_limits(monkeypatch):
        try_out(described, server, seen)
    labels = {label for label, _ in seen}
    assert len(labels) == sum(len(methods) for methods in described["paths"].values())
    assert sum(status < 300 for _, status in seen) >= 8, sorted(seen)


@pytest.mark.parametrize("lie", ["status", "body"])
def test_a_document_that_lies_is_found_out(
    server: HttpServer, operator: Client, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    described = operator.get("/openapi.json").json()
    described["paths"] = {"/api/v1/status": described["paths"]["/api/v1/status"]}
    answers = described["paths"]["/api/v1/status"]["get"]["responses"]
    if lie == "status":
        del answers["200"]
    else:
        answers["200"]["content"]["application/json"]["schema"] = {"type": "array"}
    with without_limits(monkeypatch), pytest.raises(FailureGroup):
        try_out(described, server)


def test_every_route_is_described(server: HttpServer, operator: Client) -> None:
    """Or is one of those that are no operations."""
    described = operator.get("/openapi.json").json()["paths"]
    with Client(server, None) as anyone:
        for path in described:
            answer = anyone.get(path.replace("{number}", "1").replace("{operator}", "a"))
            assert answer.status_code == 401
