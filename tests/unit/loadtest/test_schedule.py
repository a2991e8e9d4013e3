"""What an open-loop load delivers, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.loadtest.timelines import LOAD, START

from anabranch.loadtest.schedule import (
    HOLD,
    Burst,
    LoadReader,
    OpenLoop,
    ranges,
    read_schedule,
    write_schedule,
)


class TestSchedules:
    def test_rows_are_due_by_the_clock_alone(self) -> None:
        assert LOAD.end_of_batch(500, START - 1) == 500
        assert LOAD.end_of_batch(500, START) == 501  # the first row is due at once
        assert LOAD.end_of_batch(500, START + 0.25) == 526
        assert LOAD.intended(525) == START + 0.25

    def test_rows_that_were_delivered_stay_delivered(self) -> None:
        assert LOAD.end_of_batch(900, START + 1) == 900

    def test_a_late_query_gets_everything_that_is_due(self) -> None:
        assert LOAD.end_of_batch(510, START + 100) == 500 + 100 * 100 + 1

    def test_bursts_come_in_batches_and_end(self) -> None:
        burst = Burst(until_row=25, batch_rows=10)
        assert [burst.end_of_batch(start, 0.0) for start in (0, 10, 20, 25, 30)] == [
            10,
            20,
            25,
            25,
            30,
        ]
        assert HOLD.end_of_batch(7, 1e9) == 7

    @pytest.mark.parametrize("schedule", [HOLD, Burst(9, 3), LOAD])
    def test_schedules_go_through_a_file(self, tmp_path: Path, schedule: Burst | OpenLoop) -> None:
        path = tmp_path / "schedule.json"
        write_schedule(path, schedule)
        assert read_schedule(path) == schedule

    def test_the_reader_follows_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "schedule.json"
        reader = LoadReader(str(path))
        write_schedule(path, Burst(25, 20))
        rows, end = reader.read(reader.initialOffset())
        assert (list(rows), end) == ([(0, 9), (10, 19)], {"row": 20})
        rows, end = reader.read(end)
        assert (list(rows), end) == ([(20, 22), (23, 24)], {"row": 25})
        rows, end = reader.read(end)
        assert (list(rows), end) == ([], {"row": 25})

    @pytest.mark.parametrize(("first", "end"), [(0, 0), (5, 6), (5, 7), (0, 101)])
    def test_ranges_cover_all_rows_once(self, first: int, end: int) -> None:
        rows = [row for a, b in ranges(first, end) for row in range(a, b + 1)]
        assert rows == list(range(first, end))
