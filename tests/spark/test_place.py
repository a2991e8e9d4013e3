"""A site goes from one place to another, as a whole, while queries run; results stay right."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.moving import WAIT
from tests.spark.sites import ROWS, Running

from anabranch import StateService
from anabranch.errors import InvalidArgument
from anabranch.migration.strategies import STRATEGIES

SITES = ("berlin", "paris")


def service_of(spark: SparkSession, folder: Path, **settings: Any) -> StateService:
    return StateService(
        spark, str(folder / "state"), key_groups=64, lanes=2, **{"sites": SITES, **settings}
    )


def where(service: StateService, site: str = "berlin") -> list[str]:
    """The workers that have the site's key groups."""
    found: list[str] = service.status()["sites"][site]["workers"]
    return found


@pytest.mark.slow
def test_a_site_goes_from_place_to_place(spark: SparkSession, tmp_path: Path) -> None:
    """Under load; what follows leaves it there; a kill -9 in the middle changes nothing."""
    with service_of(spark, tmp_path, workers=2) as service:
        running = Running(spark, tmp_path, service)
        try:
            running.batches(2)
            assert where(service) == ["w1", "w2"]
            plan = service.place(site="berlin", on="w2", dry_run=True)
            assert {move.target for move in plan.moves} == {"w2"}
            assert len(plan.moves) == len(service._sites.groups_of("berlin")) / 2
            for strategy, target in (("live", "w2"), ("drrs", "w1"), ("pause", "w2")):
                move = service.place(site="berlin", on=target, strategy=strategy)
                running.batches(1)
                assert move.wait(WAIT)
                assert move.report().outcome == "done"
                assert where(service) == [target]
            assert service.rescale(3, wait=True).wait(WAIT)
            assert where(service) == ["w2"]
            with pytest.raises(InvalidArgument, match="are of site 'berlin', which belongs to w2"):
                service.move(service._sites.groups_of("berlin")[:2], to="w3")
            move = service.place(site="berlin", on="w3")
            os.kill(service.status()["workers"]["w2"]["pid"], signal.SIGKILL)
            assert move.wait(WAIT)
            running.batches(2)
            assert where(service) == ["w3"]
            cancelled = service.place(site="berlin", on="w1").cancel()
            cancelled.wait(WAIT)
            assert service.status()["sites"]["berlin"]["belongs_to"] == "w3"
            assert where(service) == ["w3"]
            running.batches(1)
        finally:
            running.stop()
        running.check()
        sums = service.status()["operators"]["sums"]
        traffic = sums["traffic"]
        rows = [at["rows"] for at in (*traffic["sites"].values(), traffic["undeclared"])]
        assert sum(rows) == ROWS * (sums["last_epoch"] + 1)
        assert traffic["share_across_hosts"] == 0.0  # there is one host
    with service_of(spark, tmp_path, workers=3, sites=()) as service:
        limit = time.monotonic() + WAIT
        while where(service) != ["w3"]:  # remembered; moved once the workers are there
            assert time.monotonic() < limit
            time.sleep(0.2)
        running = Running(spark, tmp_path, service)
        try:
            running.batches(2)
        finally:
            running.stop()
        running.check()


@pytest.mark.soak
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """There and back, with a request that another one overtakes."""
    with service_of(spark, tmp_path, workers=3) as service:
        running = Running(spark, tmp_path, service)
        try:
            running.batches(2)
            for target in ("w2", "w3", "w1"):
                service.place(site="berlin", on="w1", strategy=strategy)
                service.place(site="paris", on=target, strategy=strategy)
                move = service.place(site="berlin", on=target, strategy=strategy)
                assert move.wait(WAIT)
                assert where(service) == where(service, "paris") == [target]
                running.batches(1)
        finally:
            running.stop()
        running.check()
