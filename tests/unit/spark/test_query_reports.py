"""What is read from Spark's progress reports."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.model.query_reports import BatchReport, QueryReports
from anabranch.spark.query_reports import SparkReports, interval_of, lag_of, report_of


def report(batch: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": "1970-01-01T00:00:05.000Z",
        "durationMs": {"triggerExecution": 1500, "addBatch": 1000},
        "numInputRows": 10,
        "sources": [],
        **more,
    }


def kafka(start: int, end: int, latest: int, rows: int) -> dict[str, Any]:
    def offsets(number: int) -> dict[str, Any]:
        return {"orders": {"0": number, "1": 2 * number}}

    return {
        "startOffset": offsets(start),
        "endOffset": offsets(end),
        "latestOffset": offsets(latest),
        "numInputRows": rows,
    }


def test_a_report() -> None:
    told = report(7, sources=[kafka(0, 10, 15, 30)])
    assert report_of(told) == BatchReport(7, 5.0, 1.5, 10, 15, 1000)
    assert report_of(report(8, durationMs={"triggerExecution": 3})) is None


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        (kafka(0, 10, 15, 30), 15),
        (kafka(0, 10, 10, 30), 0),
        (kafka(0, 10, 15, 7), 0),  # its offsets count something else
        ({"startOffset": 5, "endOffset": 8, "latestOffset": 10, "numInputRows": 3}, 2),
        ({"startOffset": "5", "endOffset": "8", "latestOffset": "10", "numInputRows": 3}, 2),
        ({"startOffset": None, "endOffset": {"row": 3}, "numInputRows": 3}, 0),
        ({"startOffset": {"a": "x"}, "endOffset": {"a": "y"}, "numInputRows": 3}, 0),
        ({}, 0),
    ],
)
def test_rows_that_wait_in_a_source(source: dict[str, Any], rows: int) -> None:
    assert lag_of(source) == rows


def test_triggers() -> None:
    assert interval_of("ProcessingTimeTrigger(2500)") == 2.5
    assert interval_of("AvailableNowTrigger") == 0


def told(*batches: int) -> Any:
    """As Spark's execution answers."""
    reports = [
        SimpleNamespace(batchId=lambda n=n: n, json=lambda n=n: json.dumps(report(n)))
        for n in batches
    ]
    return SimpleNamespace(
        recentProgress=lambda: reports, trigger=lambda: "ProcessingTimeTrigger(0)"
    )


def test_only_what_is_new_is_read() -> None:
    executions: list[Any] = [told(0, 1), told(0, 1, 2), None]
    reports = SparkReports(lambda operator, query: executions.pop(0))
    assert [b.epoch for b in reports.reports("a", "q").batches] == [0, 1]
    assert [b.epoch for b in reports.reports("a", "q").batches] == [0, 1, 2]
    assert reports.reports("a", "q") == QueryReports()


def test_a_query_that_does_not_tell() -> None:
    reports = SparkReports(lambda operator, query: SimpleNamespace(recentProgress=lambda: [None]))
    with pytest.raises(AttributeError):
        reports.reports("a", "q")
    broken = SimpleNamespace(batchId=lambda: 0, json=lambda: "{}")
    other = SparkReports(lambda operator, query: SimpleNamespace(recentProgress=lambda: [broken]))
    assert other.reports("a", "q") == QueryReports()
