"""What operators tell of themselves in a query's progress, and a JVM that does not take it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from tests.integration.counting import Counting

from anabranch.spark import progress


def test_a_jvm_that_does_not_take_it_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def fail(_: object, name: str) -> Any:
        asked.append(name)
        if len(asked) > 1:
            raise Py4JError("no such field\n\tat java.base/Class.getDeclaredField")
        return None

    monkeypatch.setattr(progress, "java_object", fail)
    session: Any = cast(Any, type("Session", (), {"_jsparkSession": None, "conf": {}}))
    told = progress.OperatorProgress(session, "totals", Counting())
    for epoch in range(3):
        told.report("q", epoch, 2, {"rows_updated": 1})
    assert asked == ["StateProgress"] * 2
    (record,) = caplog.records
    assert "stays empty for operator 'totals'" in record.getMessage()
    assert record.getMessage().endswith("no such field")
