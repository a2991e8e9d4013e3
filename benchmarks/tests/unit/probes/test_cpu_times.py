"""CPU seconds of a process, from outside of it."""

from __future__ import annotations

import os
import time

from anabranch_bench.probes.cpu_times import cpu_seconds


def test_they_are_those_of_the_process() -> None:
    before = cpu_seconds([os.getpid()])
    used = time.process_time()
    while time.process_time() - used < 0.3:
        sum(range(1000))
    assert 0.2 < cpu_seconds([os.getpid()]) - before < 30
