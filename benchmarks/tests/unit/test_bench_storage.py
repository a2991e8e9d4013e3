"""The pure parts of `anabranch bench recovery`, `checkpoints`, `backends` and `hybrid`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.processes.worker_config import CHECKPOINTS
from anabranch_bench.bench import backends, process_tree
from anabranch_bench.bench.checkpoint_modes import UNALIGNED, ModeResult, doubts, peak_ratio
from anabranch_bench.bench.hybrid import HybridSettings, Measured
from anabranch_bench.bench.measure import BatchDurations
from anabranch_bench.bench.recovery import Recovery, flatness, is_in_batch, last_batch
from anabranch_bench.bench.recovery_driver import DriverPlan, committed_row


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


class TestFamily:
    """Real processes: a parent that has started a child in a session of its own, as workers are."""

    PARENT = """
import subprocess, sys, time
child = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(100)"]
subprocess.Popen(child, start_new_session=True)
time.sleep(100)
"""

    def test_all_end_at_once(self) -> None:
        parent = subprocess.Popen(
            [sys.executable, "-c", self.PARENT], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert parent.stdout is not None
            parent.stdout.readline()  # the child is up
            processes = process_tree.family(parent.pid)
            assert len(processes) == 2
            assert process_tree.freeze(parent.pid) == processes
            assert self._states(processes) == {"T"}
            process_tree.send(processes, signal.SIGCONT)
            process_tree.kill(parent.pid)
            assert process_tree.family(parent.pid) == set()
            assert self._states(processes) <= {"Z", "gone"}
        finally:
            parent.kill()
            parent.wait()
            assert parent.stdout is not None
            parent.stdout.close()

    def test_an_id_that_is_used_again_is_left_alone(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        try:
            process_tree.send({(process.pid, 1)}, signal.SIGKILL)
            time.sleep(0.1)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()

    def _states(self, processes: set[process_tree.Process]) -> set[str]:
        found = set()
        for pid, _ in processes:
            try:
                stat = (process_tree.PROC / str(pid) / "stat").read_text()
                found.add(stat.rpartition(")")[2].split()[0])
            except OSError:
                found.add("gone")
        return found


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


class TestBackends:
    def test_both_sides_have_batches_of_one_size(self) -> None:
        ours, spark = BatchDurations((1.0, 1.0), (50, 50)), BatchDurations((1.0, 1.0), (5, 5))
        large = BatchDurations((1.0,), (9000,))
        found = backends.compared("rows", ours, spark, 10.0, "ten times", {"large": large})
        assert found.passed
        assert found.ratio == pytest.approx(10.0)
        assert "large: 9,000 rows a second" in found.note
        worse = BatchDurations((1.0, 1.0), (49, 49))
        assert not backends.compared("rows", worse, spark, 10.0, "", {"large": large}).passed

    @pytest.mark.parametrize(
        ("last", "state_bytes", "share", "passed"),
        [
            (80, 300, 0.5, True),
            (70, 300, 0.0, False),
            (80, 299, 0.0, False),
            (80, 300, 0.51, False),
            (80, 300, 1.0, False),
        ],
        ids=["stable", "slows down", "too small", "grows along", "is all in memory"],
    )
    def test_beyond_memory(self, last: int, state_bytes: int, share: float, passed: bool) -> None:
        rows = (100, 100, 100, 90, 90, 90, last, last, last)
        done = BatchDurations((1.0,) * 9, rows)
        mega = 1 << 20
        # The first half fills caches and buffers, whatever is done with the state.
        first = [(n * mega, 500 * mega + 3 * n * mega) for n in range(1, state_bytes // 2, 10)]
        at, memory = first[-1]
        states = [*range(at + 10 * mega, state_bytes * mega, 10 * mega), state_bytes * mega]
        filling = [*first, *((state, memory + round(share * (state - at))) for state in states)]
        found = backends.beyond("beyond", done, 100 * mega, filling)
        assert found.passed is passed
        assert f"{state_bytes} MiB of state" in found.note

    def test_what_one_sample_says(self) -> None:
        assert backends.grown([(10, 20)]) == (0, 0)
        assert not backends.beyond("beyond", BatchDurations((1.0,), (1,)), 1, [(10, 20)]).passed

    def test_the_state_is_as_large_as_it_is_said_to_be(self) -> None:
        settings = backends.BackendSettings(workers=2, state_memory_bytes=1 << 20)
        size = settings.beyond_keys * (backends.PAYLOAD_BYTES + 16)
        assert size >= backends.TIMES_MEMORY * (2 << 20)


class TestHybrid:
    def test_the_limit_is_of_each_worker(self) -> None:
        settings = HybridSettings(state_gb=1.0, limit_share=0.4, workers=2)
        assert settings.limit_bytes == 200_000_000

    def test_a_line(self) -> None:
        found = Measured("hybrid", (0.1, 0.2, 0.3), 5e4, 120.0, 80.0, 0.91, 3.5, 0.7)
        assert "batch 0.20 s [0.10 to 0.30]" in found.line()
        assert "hit rate 91.0%" in found.line()
