"""The backend "rocksdb" under running queries: a worker dies, the service is rescaled live."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.moving import WAIT
from tests.spark.test_moves import Running

from anabranch import StateService
from anabranch.migration.strategies import STRATEGIES
from anabranch.state import backend


@pytest.mark.parametrize(
    "strategies",
    [("live",), pytest.param(tuple(STRATEGIES), marks=pytest.mark.soak)],
    ids=["live", "all"],
)
def test_killed_and_rescaled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategies: Sequence[str]
) -> None:
    local = tmp_path / "local"
    monkeypatch.setattr(backend, "MEMORY_BYTES_MIN", 0)  # so little that nothing stays in memory
    with StateService(
        spark,
        str(tmp_path / "state"),
        key_groups=64,
        backend="rocksdb",
        state_memory_bytes=4 << 10,
        local_dir=str(local),
    ) as service:
        running = Running(spark, tmp_path, service)
        try:
            running.batches(2)
            victim = next(iter(service.status()["workers"].values()))["pid"]
            os.kill(victim, signal.SIGKILL)
            running.batches(1)
            for strategy in strategies:
                assert service.rescale(3, strategy=strategy).wait(WAIT)
                running.batches(1)
                assert service.rescale(2, strategy=strategy).wait(WAIT)
            running.batches(1)
            assert len(list(local.glob("anabranch-*"))) == 2, "one for each worker"
        finally:
            running.stop()
        running.check()
    assert not list(local.glob("anabranch-*"))
