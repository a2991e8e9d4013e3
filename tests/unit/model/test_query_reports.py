"""What a query says about its batches is a value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from anabranch.model.query_reports import BatchReport, QueryReports


def test_a_query_that_has_said_nothing_has_no_batches_and_starts_them_at_once() -> None:
    assert QueryReports() == QueryReports(0.0, ())


def test_reports_of_one_batch_are_equal_and_cannot_be_changed() -> None:
    report = BatchReport(3, 10.0, 0.5, 100, 0)
    assert {report, BatchReport(3, 10.0, 0.5, 100, 0)} == {report}
    with pytest.raises(FrozenInstanceError):
        report.epoch = 4  # type: ignore[misc]
