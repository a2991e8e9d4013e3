"""A query stops in the middle of a batch and stays so: moves come to their end without it."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.migration.assignment import assign
from anabranch.migration.strategies import STRATEGIES
from anabranch.model.ids import WorkerId
from anabranch.simulation.cluster import Cluster
from anabranch.simulation.oracle import OPERATOR
from anabranch.simulation.scenario import STEPS_MAX

SEEDS = 20
WORKERS = tuple(WorkerId(f"w{n}") for n in (1, 2, 3))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_query_that_stays_stopped(strategy: str) -> None:
    in_a_batch = [_run(seed, strategy) for seed in range(SEEDS)]
    assert sum(in_a_batch) > SEEDS // 4


def _run(seed: int, strategy: str) -> bool:
    """Whether it was stopped in a batch; all results are the oracle's."""
    cluster = Cluster(Random(seed), batches=3, lanes=2, workers=2)
    machine = cluster.coordinator.machine
    in_a_batch: list[bool] = []

    def stop() -> None:
        in_a_batch.append(machine.operators[OPERATOR].is_in_batch)
        cluster.driver.stop()
        owners = assign(machine.routing.owners, WORKERS)
        cluster.moves._ask(owners, WORKERS, strategy, {})

    cluster.scheduler.at(20 + 4 * seed, "the query stops", stop)
    assert cluster.scheduler.run(STEPS_MAX)
    assert not cluster.moves.open, f"seed {seed} hangs"
    assert cluster.moves.is_reached
    if not cluster.driver.is_finished:
        cluster.driver.start()
    assert cluster.scheduler.run(STEPS_MAX)
    cluster.checks.at_end()
    return in_a_batch[0]
