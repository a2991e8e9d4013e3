"""Rows that sources are ahead, from the progress of a query."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.spark.source_lag import lag_of

KAFKA = {"orders": {"0": 100, "1": 50}}


def lag(*sources: tuple[Any, Any]) -> int | None:
    told = [{"latestOffset": latest, "endOffset": ended} for latest, ended in sources]
    return lag_of(json.dumps({"sources": told}))


@pytest.mark.parametrize(
    ("latest", "ended", "rows"),
    [
        (KAFKA, {"orders": {"0": 90, "1": 50}}, 10),
        (KAFKA, KAFKA, 0),
        (KAFKA, {"orders": {"0": 90}}, 60),  # a partition that is new
        (json.dumps(KAFKA), json.dumps({"orders": {"0": 1, "1": 1}}), 148),
        ({"offset": 12}, {"offset": 5}, 7),
        (KAFKA, {"orders": {"0": 200, "1": 50}}, 0),  # the latest is an older look
        (None, None, None),  # files
        ({"offset": 12, "timestamp": 1}, {"offset": 5, "timestamp": 0}, None),
        (12, 5, None),  # of what?
        ("later", "now", None),
        ({"a": {"b": "c"}}, {"a": {"b": "d"}}, None),
    ],
)
def test_only_what_counts_rows_counts(latest: Any, ended: Any, rows: int | None) -> None:
    assert lag((latest, ended)) == rows


def test_sources_add_up() -> None:
    assert lag((KAFKA, {"orders": {}}), (None, None), ({"offset": 2}, {"offset": 1})) == 151
    assert lag() is None
