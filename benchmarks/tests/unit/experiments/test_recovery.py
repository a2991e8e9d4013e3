"""The pure parts of `anabranch bench recovery`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_bench.experiments.recovery import (
    Recovery,
    flatness,
    is_in_batch,
    judge_flatness,
)
from anabranch_bench.experiments.recovery_driver import DriverPlan, committed_row
from anabranch_bench.runs.batch_runs import last_batch


class TestRecovery:
    def test_flatness_is_of_the_ends(self) -> None:
        found = [
            Recovery("hybrid", 4.0, [2.4, 2.6, 9.0]),
            Recovery("hybrid", 0.5, [2.0]),
            Recovery("hybrid", 1.0, [50.0]),
            Recovery("spark", 0.5, [1.0]),
            Recovery("spark", 4.0, [90.0]),
        ]
        assert flatness(found) == pytest.approx(1.3)
        assert judge_flatness(found).passed is True
        assert judge_flatness([*found, Recovery("hybrid", 8.0, [2.7])]).passed is False
        assert judge_flatness(found[:1]).passed is None
        assert flatness(found[:1]) is None
        assert flatness(found[3:]) is None

    def test_a_line_says_what_was_measured(self) -> None:
        ours = Recovery("hybrid", 0.5, [2.0, 3.0, 4.0], [0.5], [12.0])
        assert "first commit 3.00 s [2.00 to 4.00]" in ours.line()
        assert "all in memory after 12.0 s" in ours.line()
        assert ours.to_json()["counted_from"]

    def test_a_batch_that_runs_is_seen_in_sparks_logs(self, tmp_path: Path) -> None:
        assert last_batch(tmp_path, "offsets") == -1
        assert not is_in_batch(tmp_path)
        for log, batches in (("offsets", (8, 9, 10)), ("commits", (8, 9))):
            (tmp_path / log).mkdir()
            for batch in batches:
                (tmp_path / log / str(batch)).touch()
        (tmp_path / "offsets" / ".11.tmp").touch()
        assert last_batch(tmp_path, "offsets") == 10
        assert is_in_batch(tmp_path)
        (tmp_path / "commits" / "10").touch()
        assert not is_in_batch(tmp_path)

    def test_rows_go_on_after_the_last_commit(self, tmp_path: Path) -> None:
        assert committed_row(tmp_path) == 0
        (tmp_path / "metadata").write_text('{"id": "q"}')
        assert committed_row(tmp_path) == 0
        for log in ("offsets", "commits"):
            (tmp_path / log).mkdir()
        (tmp_path / "offsets" / "4").write_text('v1\n{}\n{"row": 700}')
        (tmp_path / "offsets" / "5").write_text('v1\n{}\n{"row": 900}')
        (tmp_path / "commits" / "4").write_text("v1\n{}")
        assert committed_row(tmp_path) == 700

    def test_a_plan_travels(self) -> None:
        plan = DriverPlan("folder", "hybrid", True, 10, 100, 5, 2, 1.5)
        assert DriverPlan.decode(plan.encode()) == plan
