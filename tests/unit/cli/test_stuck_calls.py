"""Which calls of user code still hang, by the entries of a journal."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from anabranch.cli.stuck_calls import about, begun, stuck_calls

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


def entry(kind: str, worker: str | None = None, number: int | None = None) -> dict[str, Any]:
    """As the journal reads one: fields that say nothing are not there."""
    row: dict[str, Any] = {"kind": kind, "time": NOON, "seconds": 11.0, "operator": "totals"}
    if worker is not None:
        row["worker"] = worker
    if number is not None:
        row["details"] = {"number": number, "method": "Slow.handleInputRows", "key": "(7,)"}
    return row


STUCK = [entry("user-code-stuck", "w1", 5), entry("batch"), entry("user-code-stuck", "w2", 5)]


def test_calls_of_workers_are_told_apart() -> None:
    assert [row["worker"] for row in stuck_calls(STUCK)] == ["w1", "w2"]
    back = entry("user-code-back", "w1", 5)
    assert [row["worker"] for row in stuck_calls([*STUCK, back])] == ["w2"]
    other = entry("user-code-back", "w1", 4)
    assert len(stuck_calls([*STUCK, other])) == 2


@pytest.mark.parametrize("kind", ["worker-ended", "worker-started"])
def test_they_end_with_their_process(kind: str) -> None:
    assert [row["worker"] for row in stuck_calls([*STUCK, entry(kind, "w2")])] == ["w1"]


@pytest.mark.parametrize("kind", ["service-started", "service-stopped"])
def test_they_end_with_their_service(kind: str) -> None:
    assert stuck_calls([*STUCK, entry(kind)]) == []


def test_what_people_read() -> None:
    row = {**STUCK[0], "epoch": 3}
    assert about(row) == "operator 'totals', Slow.handleInputRows, key (7,), batch 3"
    assert begun(row) == NOON - timedelta(seconds=11)
    row = {**STUCK[0], "details": {"method": "Columns.apply"}}
    assert about(row) == "operator 'totals', Columns.apply"
