"""Batches of a query, from its operators and from what it tells itself."""

from __future__ import annotations

import pytest

from anabranch.coordinator.load_book import joined
from anabranch.coordinator.useful_time import BatchLoad
from anabranch.model.query_reports import BatchReport, QueryReports


def load(
    epoch: int, started: float, seconds: float = 1.0, rows: int = 100, **useful: float
) -> BatchLoad:
    return BatchLoad(epoch, started, seconds, rows, useful or {"w1": 0.4}, 1, 0)


def test_operators_of_a_query_are_one() -> None:
    first = [load(0, 0.0, w1=0.2), load(1, 2.0, w1=0.2)]
    second = [load(0, 0.5, w1=0.1, w2=0.3)]
    (batch,) = joined([first, second], QueryReports())  # the second operator is not done with 1
    assert batch.useful == {"w1": pytest.approx(0.3), "w2": 0.3}
    assert (batch.started, batch.seconds, batch.rows, batch.workers) == (0.0, 1.5, 200, 2)


def test_the_query_knows_its_times_and_what_waits() -> None:
    """Its source has one row for ten of the operator's."""
    loads = [[load(0, 1.0), load(1, 3.0), load(2, 5.0)]]
    told = QueryReports(0.0, (BatchReport(0, 0.5, 1.9, 10, 0), BatchReport(1, 2.5, 1.8, 10, 7)))
    first, second = joined(loads, told)
    assert (first.started, first.seconds, first.lag_rows) == (0.5, 1.9, 0)
    assert second.lag_rows == 70


def test_without_reports_the_coordinators_clock_counts() -> None:
    batches = joined([[load(0, 1.0), load(1, 3.0)]], QueryReports())
    assert [batch.started for batch in batches] == [1.0, 3.0]


def test_what_else_went_on_is_noted() -> None:
    loads = [[load(0, 1.0), load(1, 3.0)]]
    first, second = joined(loads, QueryReports(), lambda started, ended: started > 2)
    assert (first.is_calm, second.is_calm) == (False, True)
