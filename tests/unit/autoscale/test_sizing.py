"""How many workers are needed: the formulas of docs/autoscaling.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.autoscale.situations import BUSY, OVERHEAD, TARGET, load

from anabranch.autoscale.measure import QueryModel, model_of
from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.sizing import WorkersNeeded, need_of, trusted_least


def need(rate: float, settings: AutoscaleSettings = TARGET, **more: Any) -> WorkersNeeded:
    return need_of(replace(model(rate), **more), 2, settings)


def model(rate: float) -> QueryModel:
    query = load(rate)
    return model_of(query, query.batches[-1].ended, 2, TARGET)


def test_for_a_latency_target() -> None:
    found = need(130)
    assert found.least == pytest.approx(130 / (100 * (1 - OVERHEAD)))
    assert found.good == 3  # 2 would be just enough


def test_for_a_utilization() -> None:
    found = need(130, BUSY)
    assert found.good == 2  # 130 / (100 * 0.7)
    assert found.least == pytest.approx(130 / (100 * 0.85))


def test_a_long_trigger_interval_makes_batches_larger() -> None:
    assert need(100, interval=3.0).least == pytest.approx(3 * need(100).least)
    assert need(100, interval=0.5).least == pytest.approx(need(100).least)


def test_a_backlog_is_to_disappear_in_time() -> None:
    found = need(100, backlog=3000.0)
    assert found.demand == pytest.approx(100 + 3000 / 30)


def test_overhead_above_the_target_is_nothing_that_workers_can_change() -> None:
    found = need(100, overhead=1.0)
    assert found.cannot_help
    assert found.good == 2


def test_a_lag_beside_idle_workers_is_the_sources() -> None:
    slow = need(20, backlog=50_000.0, lag=50_000.0)
    assert slow.is_source_slow
    assert slow.good == 1
    late = need(20, backlog=50_000.0, lag=50_000.0, batch_seconds=3.0)
    assert not late.is_source_slow
    assert need(20, BUSY, backlog=9e4, lag=9e4).is_source_slow
    busy = need(100, backlog=50_000.0, lag=50_000.0)
    assert not busy.is_source_slow
    assert busy.good > 8


def test_workers_are_trusted_with_twice_what_they_have_shown() -> None:
    assert trusted_least(400, 50) == 4
    assert trusted_least(401, 50) == 5
    assert trusted_least(400, 0) == 1
