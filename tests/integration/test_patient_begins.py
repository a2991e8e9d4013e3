"""A begin that waits for a worker is asked again, patiently; the batch is timed all the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.integration.harness import Cluster, Oracle

from anabranch.transport import signs_of_life

KEYS = range(50)


def test_a_begin_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "BRIEF_SECONDS", 0.0)
    oracle = Oracle()
    with Cluster(tmp_path) as cluster:
        for epoch in range(3):
            for pid in cluster.coordinator.pids().values():
                os.kill(pid, signal.SIGKILL)
            assert cluster.run_batch(epoch, KEYS) == oracle.run_batch(KEYS)
        batches = cluster.coordinator.status()["operators"]["counts"]["batches"]
        assert [batch["epoch"] for batch in batches] == [0, 1, 2]
        assert all(batch["seconds"] for batch in batches)
