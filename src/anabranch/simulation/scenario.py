"""One scenario: a seed becomes a cluster, its input and its faults, and a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from anabranch.simulation.cluster import Cluster
from anabranch.simulation.faults import FAULTS, MOVE_FAULTS, stop_query
from anabranch.simulation.host_faults import HOST_FAULTS

STEPS_MAX = 20_000
FAULTS_MAX = 4
HOST_FAULTS_MAX = 4
START_TICKS = 30
"""Until the first hosts have joined."""
MOVE_TICKS = 70
BATCH_TICKS = 50
"""About how long a batch takes; faults are spread over the whole run."""

_NAMES: list[Callable[[Cluster], None]] = list(FAULTS)
_WEIGHTS = list(FAULTS.values())
_MOVE_NAMES: list[Callable[[Cluster], None]] = list(MOVE_FAULTS)
_MOVE_WEIGHTS = list(MOVE_FAULTS.values())
_HOST_NAMES: list[Callable[[Cluster], None]] = list(HOST_FAULTS)
_HOST_WEIGHTS = list(HOST_FAULTS.values())


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """How a scenario ended."""

    seed: int
    steps: int
    failure: str | None = None
    trace: tuple[str, ...] = ()
    """Only of a failed scenario, or when asked for; as its fingerprint."""
    trace_hash: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each mechanism was at work."""
    has_hosts: bool = False


def run_seed(seed: int, keep_trace: bool = False, hosts: bool = False) -> ScenarioResult:
    """Run the scenario of a seed; with hosts, it is another one."""
    rng = Random(seed)
    batches = rng.choice((2, 2, 2, 3, 4))
    lanes, workers = rng.choice((1, 1, 2, 2, 3)), 2 + int(rng.random() * 2)
    order_rng = Random(seed) if seed % 10 in (2, 6, 9) else None
    sleep_rng = Random(seed) if seed % 20 in (4, 10, 14) else None
    host_rng = Random(seed) if hosts else None
    cluster = Cluster(rng, batches, lanes, workers, seed % 10 == 4, order_rng, sleep_rng, host_rng)
    failure: str | None = None
    try:
        if seed % 10 == 7:  # beside the others, which stay what they are
            when = int(Random(seed).random() * batches * BATCH_TICKS)
            _schedule(cluster, when, stop_query)
        _schedule_moves(cluster, batches)
        _schedule_faults(cluster, batches)
        if cluster.hosts is not None:
            if seed % 5 == 4:  # beside the others too
                cluster.hosts.join_rng = Random(seed)
            _schedule_host_faults(cluster, batches)
        _run(cluster)
    except Exception as error:  # whatever a machine or a check raises is a finding
        failure = f"{type(error).__name__}: {error}"
    scheduler, counts = cluster.scheduler, dict(cluster.counts)
    if not failure and not keep_trace:
        return ScenarioResult(seed, scheduler.steps, counts=counts, has_hosts=hosts)
    trace, fingerprint = scheduler.trace_lines(), scheduler.trace_hash()
    return ScenarioResult(seed, scheduler.steps, failure, trace, fingerprint, counts, hosts)


def _schedule_moves(cluster: Cluster, batches: int) -> None:
    rng, scheduler = cluster.rng, cluster.scheduler
    when = int(rng.random() * batches * BATCH_TICKS)
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3))):
        scheduler.at(when, "", _begin_move, cluster)
        if rng.random() < 0.7:  # while the one before is likely to run
            when += int(rng.random() * MOVE_TICKS)
        else:
            when = int(rng.random() * batches * BATCH_TICKS)


def _begin_move(cluster: Cluster) -> None:
    if cluster.driver.is_refused:
        return
    cluster.moves.begin()
    rng, scheduler = cluster.rng, cluster.scheduler
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        fault = rng.choices(_MOVE_NAMES, _MOVE_WEIGHTS)[0]
        delay = int(rng.random() * MOVE_TICKS)
        scheduler.after(delay, f"FAULT {fault.__name__}", _strike, fault, cluster)


def _schedule_faults(cluster: Cluster, batches: int) -> None:
    rng = cluster.rng
    for _ in range(int(rng.random() * (FAULTS_MAX + 1))):
        fault = rng.choices(_NAMES, _WEIGHTS)[0]
        _schedule(cluster, int(rng.random() * batches * BATCH_TICKS), fault)


def _schedule_host_faults(cluster: Cluster, batches: int) -> None:
    rng = cluster.rng
    for _ in range(1 + int(rng.random() * HOST_FAULTS_MAX)):
        fault = rng.choices(_HOST_NAMES, _HOST_WEIGHTS)[0]
        _schedule(cluster, START_TICKS + int(rng.random() * batches * BATCH_TICKS), fault)


def _schedule(cluster: Cluster, when: int, fault: Callable[[Cluster], None]) -> None:
    cluster.scheduler.at(when, f"FAULT {fault.__name__}", _strike, fault, cluster)


def _strike(fault: Callable[[Cluster], None], cluster: Cluster) -> None:
    if not cluster.driver.is_finished:
        fault(cluster)


def _run(cluster: Cluster) -> None:
    if not cluster.scheduler.run(STEPS_MAX):
        raise RuntimeError(f"no end after {STEPS_MAX} steps: the cluster goes in circles")
    cluster.checks.at_end()
