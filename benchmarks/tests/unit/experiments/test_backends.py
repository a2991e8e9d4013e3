"""The pure parts of `anabranch bench backends`."""

from __future__ import annotations

import pytest

from anabranch_bench.experiments import backends
from anabranch_bench.runs.batch_runs import BatchDurations


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
