"""Axes with round numbers."""

from __future__ import annotations

import pytest

from anabranch.report.chart import Chart, nice_times, nice_values


@pytest.mark.parametrize("top", [0.003, 0.9, 1.0, 7.0, 42.0, 1234.0, 9.9e9])
def test_values_are_round_and_few(top: float) -> None:
    values = nice_values(top)
    assert values[0] == 0
    assert 2 <= len(values) <= 8
    assert top / 2 < values[-1] <= top


@pytest.mark.parametrize("length", [2.0, 90.0, 3600.0, 86_400.0, 1e7])
def test_times_are_round_and_few(length: float) -> None:
    times = nice_times(1_000_000.0, 1_000_000.0 + length)
    assert 1 <= len(times) <= 14
    assert all(1_000_000.0 <= at <= 1_000_000.0 + length for at in times)


def test_what_is_beyond_stays_inside() -> None:
    chart = Chart("x", "s", 0.0, 10.0, 1.0)
    assert chart.x(99.0) == chart.x(10.0)
    assert chart.y(99.0) == chart.y(1.0)


def test_a_moment_and_nothing_are_drawn_too() -> None:
    chart = Chart("x", "s", 5.0, 5.0, 0.0)
    chart.line("one", [(5.0, 0.0)], 0)
    assert "<circle" in chart.svg()
