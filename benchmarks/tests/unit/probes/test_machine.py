"""What became of the cores' time, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

from anabranch_bench.probes.machine import CoreShares, CoreTimes


def test_what_became_of_the_cores(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  50 0 20 100 5 0 5 20 0 0\ncpu0 1 2 3 4 5 6 7 8\n")
    times = CoreTimes(stat)
    assert not str(times.since()), "no time has passed"
    stat.write_text("cpu  110 0 20 115 10 0 5 40 0 0\n")
    assert times.since() == CoreShares(busy=0.6, stolen=0.2)
    assert not str(CoreTimes(tmp_path / "none").since())
