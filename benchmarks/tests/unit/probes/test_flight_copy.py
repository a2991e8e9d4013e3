"""Plain copies between two processes."""

from __future__ import annotations

import pytest

from anabranch_bench.probes.flight_copy import copy_rates, payload_batches


class TestFlightCopy:
    def test_size(self) -> None:
        size = sum(batch.nbytes for batch in payload_batches(10 << 20))
        assert size == pytest.approx(10 << 20, rel=0.02)

    def test_copies(self) -> None:
        rates = copy_rates(1 << 20, 2)
        assert len(rates) == 2
        assert min(rates) > 0
