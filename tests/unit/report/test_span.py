"""A span of time, sorted."""

from __future__ import annotations

import pytest
from tests.unit.report.entries import START, rows

from anabranch.model.journal_entry import EntryKind
from anabranch.report.span import Span


def test_what_happened_is_sorted() -> None:
    span = Span.of(rows())
    assert len(span.batches) == 100
    assert span.batches[50].phases == {"load": 3.0, "wait": 0.0, "apply": 0.2, "write": 0.03}
    (move,) = span.moves
    assert (move.started, move.ended, move.outcome) == (START + 45, START + 55, "done")
    assert [row["kind"] for row in span.bad] == ["worker-ended"]
    assert all(row["kind"] not in ("batch", "load") for row in span.events)


def test_numbers() -> None:
    facts = Span.of(rows()).facts()
    assert facts["batches"] == "100"
    assert facts["rows"] == "100,000"
    assert facts["longest batch"] == "4.000 s"
    assert facts["longest pause of a move"] == "3000 ms"
    assert facts["deaths of workers"] == "1"
    assert facts["failed batches"] == "0"


def test_busy_is_growth_and_a_new_process_counts_from_zero() -> None:
    times, shares = zip(*Span.of(rows()).busy["w1"], strict=True)
    assert times == (START + 20, START + 40)
    assert shares == pytest.approx((0.8, 0.1))


def test_moves_without_a_begin_or_an_end() -> None:
    found = rows()
    (end,) = Span.of([row for row in found if row["kind"] != EntryKind.MOVE_STARTED.value]).moves
    assert end.started == pytest.approx(START + 45)
    (begun,) = Span.of([row for row in found if row["kind"] != EntryKind.MOVE_ENDED.value]).moves
    assert begun.ended is None
    assert "no end" in begun.outcome


def test_a_service_that_starts_again_counts_moves_again() -> None:
    (start,) = (row for row in rows() if row["kind"] == EntryKind.MOVE_STARTED.value)
    again = {"kind": EntryKind.SERVICE_STARTED.value, "time": start["time"]}
    assert len(Span.of([start, again, start]).moves) == 2


def test_nothing() -> None:
    span = Span.of([])
    assert span.facts()["batches"] == "0"
    assert not span.moves
