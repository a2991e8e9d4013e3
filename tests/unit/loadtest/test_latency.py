"""Latency counts from the time at which a row was due."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from tests.unit.loadtest.timelines import LOAD, RATE, START, back_to_back

from anabranch.loadtest.latency import Batch, Timeline, TimeWindow, median


class TestLatency:
    def test_every_row_counts_from_its_intended_time(self) -> None:
        # Rows 500..509 were due from 0.00 s to 0.09 s and committed at 0.5 s.
        timeline = Timeline(LOAD, [Batch(500, 510, START + 0.1, START + 0.5)])
        latency = timeline.during(TimeWindow(0, 1))
        expected = 0.5 - np.arange(10) / RATE
        assert latency.rows == 10
        assert latency.peak == pytest.approx(0.5)
        assert latency.mean == pytest.approx(expected.mean())
        assert latency.p50 == pytest.approx(np.percentile(expected, 50))
        assert latency.p99 == pytest.approx(np.percentile(expected, 99))

    def test_percentiles_weigh_rows_not_batches(self) -> None:
        many = Batch(500, 1500, START + 10, START + 10.1)
        one = Batch(1500, 1501, START + 10.1, START + 60)
        latency = Timeline(LOAD, [many, one]).during(TimeWindow(0, 100))
        assert latency.peak == pytest.approx(50)
        assert latency.p99 < 11

    def test_a_steady_query_takes_one_to_two_batches(self) -> None:
        latency = back_to_back(0.5, until=20).during(TimeWindow(5, 15))
        assert latency.peak == pytest.approx(1.0, abs=0.03)
        assert latency.mean == pytest.approx(0.75, abs=0.03)
        assert latency.throughput == pytest.approx(RATE, rel=0.02)

    def test_rows_that_waited_for_the_move_count_to_it_though_done_after_it(self) -> None:
        timeline = back_to_back(0.5, until=30, stall=(10, 18))
        move = TimeWindow(10, 18)
        assert timeline.during(move).peak >= 8.5
        assert timeline.before(TimeWindow(2, 10)).peak < 1.1
        assert timeline.after(TimeWindow(20, 30)).peak < 1.1

    def test_before_has_only_rows_that_were_done(self) -> None:
        timeline = back_to_back(0.5, until=30, stall=(10, 18))
        before, during = timeline.before(TimeWindow(0, 10)), timeline.during(TimeWindow(10, 18))
        after = timeline.after(TimeWindow(18, 30))
        assert before.rows < 1000
        assert during.rows > 800
        assert after.rows == pytest.approx(1150, abs=60)

    def test_throughput_is_not_rounded_to_batches(self) -> None:
        timeline = back_to_back(0.7, until=30)
        for width in (0.1, 0.8, 2.3):
            assert timeline.throughput(TimeWindow(10, 10 + width)) == pytest.approx(RATE, rel=0.02)

    def test_rows_before_the_load_do_not_count(self) -> None:
        timeline = Timeline(LOAD, [Batch(400, 510, START, START + 1)])
        assert timeline.during(TimeWindow(0, 1)).rows == 10

    def test_nothing_measured(self) -> None:
        latency = Timeline(LOAD, []).during(TimeWindow(0, 1))
        assert latency.rows == 0
        assert json.dumps(latency.to_json(), allow_nan=False)
        assert math.isnan(median([math.nan]))
        assert median([3, 1, 2, math.nan]) == 2
        assert median([1, 2]) == 1.5

    def test_a_part_of_a_load(self) -> None:
        whole = back_to_back(0.5, 30)
        cut = Timeline(whole.load.later(START + 10), whole.batches)
        assert cut.end == pytest.approx(whole.end - 10, abs=0.02)
        assert cut.during(TimeWindow(2, 6)).mean == pytest.approx(
            whole.during(TimeWindow(12, 16)).mean
        )
        assert whole.load.later(START - 5) == whole.load
