"""What the results of `anabranch bench checkpoints` are good for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.processes.worker_config import CHECKPOINTS
from anabranch_bench.experiments.checkpoint_modes import UNALIGNED, ModeResult, doubts, peak_ratio


def mode_result(mode: str, peak: float, deferred: int = 0) -> ModeResult:
    return ModeResult(mode, 0, 1e5, 3e4, 0.5, 0.9, 1e6, peak, 4.0, deferred, min(deferred, 2), 3.0)


class TestCheckpoints:
    RESULTS = (*(mode_result(mode, 4.0) for mode in CHECKPOINTS if mode != UNALIGNED),)

    def test_a_run_that_shows_the_mode_has_no_doubts(self) -> None:
        results = [*self.RESULTS, mode_result(UNALIGNED, 1.0, 5_000)]
        assert doubts(results) == []
        assert peak_ratio(results) == pytest.approx(0.25)
        assert "5,000 rows of 2 batches waited in checkpoints" in str(results[-1])

    def test_rows_must_have_waited(self) -> None:
        (doubt,) = doubts([*self.RESULTS, mode_result(UNALIGNED, 1.0)])
        assert "no row waited" in doubt
        # In one of several runs is enough.
        assert not doubts([mode_result(UNALIGNED, 1.0), mode_result(UNALIGNED, 1.0, 3)])

    def test_aligned_modes_must_not_defer(self) -> None:
        (doubt,) = doubts([mode_result("full", 1.0, 3)])
        assert "but it is aligned" in doubt

    def test_failures_are_told(self) -> None:
        failed = replace(mode_result(UNALIGNED, 1.0), error="it broke")
        assert doubts([failed]) == ["unaligned: it broke"]
        assert peak_ratio([failed, *self.RESULTS]) is None

    def test_which_modes_are_aligned_is_in_the_json(self) -> None:
        aligned = {mode: mode_result(mode, 1.0).to_json()["aligned"] for mode in CHECKPOINTS}
        assert [mode for mode, is_aligned in aligned.items() if not is_aligned] == [UNALIGNED]
