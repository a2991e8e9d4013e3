"""The pure parts of `anabranch bench hybrid`."""

from __future__ import annotations

from anabranch_bench.experiments.hybrid import HybridResult, HybridSettings


class TestHybrid:
    def test_the_limit_is_of_each_worker(self) -> None:
        settings = HybridSettings(state_gb=1.0, limit_share=0.4, workers=2)
        assert settings.limit_bytes == 200_000_000

    def test_a_line(self) -> None:
        found = HybridResult("hybrid", (0.1, 0.2, 0.3), 5e4, 120.0, 80.0, 0.91, 3.5, 0.7)
        assert "batch 0.20 s [0.10 to 0.30]" in found.line()
        assert "hit rate 91.0%" in found.line()
