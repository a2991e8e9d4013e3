"""What can go wrong: each fault is a function on the cluster, named in FAULTS with its weight."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from anabranch.model.ids import WorkerId

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.worker import WorkerProcess

ZOMBIE_TICKS, CUT_TICKS = 60, 120
TWICE_SHARE, UNHEARD_SHARE = 0.15, 0.08
"""Orders that are carried out twice; those whose reply is lost."""
LANES_MAX = 4

INSTALL_FAILURES = 0.02
"""Share of parts that cannot be put in place."""


class FaultState:
    """Faults that wait for their moment, for example for the next write."""

    __slots__ = (
        "failing_starts",
        "hanging_calls",
        "hanging_starts",
        "load_failures",
        "order_rng",
        "rng",
        "user_failures",
        "write_failures",
    )

    def __init__(self, rng: Random, order_rng: Random | None = None) -> None:
        """`order_rng` chooses orders that go wrong; None: none does."""
        self.rng = rng
        self.order_rng = order_rng
        self.clear()

    def clear(self) -> None:
        """Nothing goes wrong until the next fault."""
        self.write_failures = 0
        self.load_failures = 0
        self.user_failures = 0
        self.hanging_calls = 0
        self.hanging_starts = 0
        self.failing_starts: dict[WorkerId, int] = {}

    def write_outcome(self) -> tuple[bool, bool]:
        """Whether a write lands, and whether its writer is told so: a reply can be lost."""
        if not self.write_failures:
            return True, True
        self.write_failures -= 1
        return self.rng.random() < 0.5, False

    def order_comes_again(self) -> int | None:
        """Whether an order is carried out twice: when it comes again; None: it does not."""
        rng = self.order_rng
        if rng is None or rng.random() >= TWICE_SHARE:
            return None
        return int(rng.random() * CUT_TICKS)

    def reply_is_lost(self) -> bool:
        """Whether an order was carried out, but seems to have failed."""
        return self.order_rng is not None and self.order_rng.random() < UNHEARD_SHARE

    def write_survives_writer(self) -> bool:
        """Whether a write that was on its way lands although its writer has died."""
        return self.rng.random() < 0.5

    def load_fails(self) -> bool:
        """Whether a read from the store fails."""
        if not self.load_failures:
            return False
        self.load_failures -= 1
        return True

    def install_fails(self) -> bool:
        """Whether memory is short when a part is put in place."""
        return self.rng.random() < INSTALL_FAILURES

    def user_code_fails(self) -> bool:
        """Whether user code raises."""
        if not self.user_failures:
            return False
        self.user_failures -= 1
        return True

    def start_fails(self, worker: WorkerId) -> bool:
        """Whether a worker process ends before it is ready."""
        left = self.failing_starts.get(worker, 0)
        self.failing_starts[worker] = max(0, left - 1)
        return left > 0

    def call_hangs(self) -> bool:
        """Whether something between two hosts forgets the connection of a call."""
        if not self.hanging_calls:
            return False
        self.hanging_calls -= 1
        return True

    def start_hangs(self) -> bool:
        """Whether nobody ever hears of a start again."""
        if not self.hanging_starts:
            return False
        self.hanging_starts -= 1
        return True

    def other_lanes(self, lanes: int) -> int:
        """The number of lanes after a restart."""
        return 1 + int(self.rng.random() * LANES_MAX) if self.rng.random() < 0.5 else lanes


def any_process(cluster: Cluster) -> WorkerProcess | None:
    alive = [p for p in cluster.processes.values() if p.is_alive]
    return cluster.rng.choice(alive) if alive else None


def crash_worker(cluster: Cluster) -> None:
    """A worker process dies; the coordinator notices later."""
    _crash(cluster, any_process(cluster))


def zombie_worker(cluster: Cluster) -> None:
    """The coordinator gives up a worker that still lives and goes on for a while."""
    _crash(cluster, any_process(cluster), is_zombie=True)


def break_stream(cluster: Cluster) -> None:
    """One exchange loses its connection."""
    exchanges = [e for task in cluster.driver.tasks for e in task.exchanges.values()]
    if exchanges:
        cluster.exchanges.break_off(cluster.rng.choice(exchanges))


def kill_task(cluster: Cluster) -> None:
    """Spark loses a task (its executor died) and starts it again."""
    driver = cluster.driver
    alive = [task for task in driver.tasks if task.is_alive]
    if alive:
        task = cluster.rng.choice(alive)
        task.kill()
        if task.lane not in driver.done:
            driver.launch(task.lane)


def lose_result(cluster: Cluster) -> None:
    """A task has finished, but its executor dies before Spark has its result: it runs again."""
    driver = cluster.driver
    if driver.done and len(driver.done) < len(driver.wanted):
        lane = cluster.rng.choice(sorted(driver.done))
        del driver.done[lane]
        driver.launch(lane)


def speculate(cluster: Cluster) -> None:
    """Spark runs a second attempt of a task beside the first."""
    driver = cluster.driver
    alive = [task for task in driver.tasks if task.is_alive and task.lane not in driver.done]
    if alive:
        driver.launch(cluster.rng.choice(alive).lane)


def restart_query(cluster: Cluster) -> None:
    """The query starts again, with other lanes or not, its operator defined anew or not."""
    if cluster.coordinator.is_alive:
        lanes = cluster.faults.other_lanes(cluster.driver.lanes)
        cluster.restart_query(lanes, cluster.rng.random() < 0.5)


def stop_query(cluster: Cluster) -> None:
    """The query is stopped for good, in the middle of a batch; the service goes on."""
    cluster.driver.stop()
    cluster.driver.is_stopped = True


def crash_driver(cluster: Cluster) -> None:
    """The driver dies at any moment."""
    if cluster.coordinator.is_alive:
        cluster.crash_driver()


def crash_before_commit(cluster: Cluster) -> None:
    """The driver dies after the manifest and before Spark's commit."""
    cluster.driver.crashes_before_commit = True


def run_batch_twice(cluster: Cluster) -> None:
    """foreachBatch runs two actions."""
    cluster.driver.actions_left += 1


def skip_lanes(cluster: Cluster) -> None:
    """foreachBatch runs only some lanes."""
    cluster.driver.skips_lanes = True


def swallow_error(cluster: Cluster) -> None:
    """foreachBatch catches the error of a write to the store and goes on."""
    cluster.driver.swallows_errors = True
    fail_writes(cluster)


def fail_writes(cluster: Cluster) -> None:
    """The store refuses writes for a while, or its replies are lost."""
    cluster.faults.write_failures = 1 + int(cluster.rng.random() * 3)


def fail_loads(cluster: Cluster) -> None:
    """The store refuses reads for a while."""
    cluster.faults.load_failures = 1 + int(cluster.rng.random() * 2)


def fail_user_code(cluster: Cluster) -> None:
    """User code raises."""
    cluster.faults.user_failures = 1


def fail_starts(cluster: Cluster) -> None:
    """A worker dies and its replacement does not start at once, or not at all."""
    process = any_process(cluster)
    if process is not None:
        cluster.faults.failing_starts[process.worker] = 1 + int(cluster.rng.random() * 3)
        process.crash()
        cluster.declare_down(process)


def partition(cluster: Cluster) -> None:
    """Two endpoints cannot reach each other for a while."""
    rng, driver = cluster.rng, cluster.driver
    lane = f"L{int(rng.random() * driver.lanes)}"
    worker = rng.choice(sorted(cluster.processes) or ["w1"])
    ends = rng.choice([("C", lane), ("C", worker), (lane, worker)])
    cluster.network.cut(ends, 1 + int(rng.random() * CUT_TICKS))


def _moving(cluster: Cluster, at_source: bool) -> WorkerProcess | None:
    """A process that gives key groups away, or gets them, in the reconfiguration that runs."""
    current = cluster.coordinator.machine.moves.current
    if current is None or not current.moves:
        return any_process(cluster)
    move = cluster.rng.choice(current.moves)
    process = cluster.processes.get(move.source if at_source else move.target)
    return process if process is not None and process.is_alive else None


def _crash(cluster: Cluster, process: WorkerProcess | None, is_zombie: bool = False) -> None:
    if process is None:
        return
    cluster.declare_down(process)
    if is_zombie:
        delay = cluster.scheduler.delay(ZOMBIE_TICKS)
        cluster.scheduler.after(delay, f"{process.name} ends", process.crash)
    else:
        process.crash()


def crash_source(cluster: Cluster) -> None:
    """A worker dies that gives key groups away."""
    _crash(cluster, _moving(cluster, True))


def crash_target(cluster: Cluster) -> None:
    """A worker dies that gets key groups."""
    _crash(cluster, _moving(cluster, False))


def zombie_source(cluster: Cluster) -> None:
    """The coordinator gives up a source that still lives."""
    _crash(cluster, _moving(cluster, True), is_zombie=True)


def zombie_target(cluster: Cluster) -> None:
    """The coordinator gives up a target that still lives."""
    _crash(cluster, _moving(cluster, False), is_zombie=True)


def lose_target(cluster: Cluster) -> None:
    """A target dies and cannot be started again for a while, or not at all."""
    process = _moving(cluster, False)
    if process is not None:
        cluster.faults.failing_starts[process.worker] = 1 + int(cluster.rng.random() * 3)
        _crash(cluster, process)


def partition_peers(cluster: Cluster) -> None:
    """Two workers cannot reach each other for a while."""
    workers = sorted(cluster.processes)
    if len(workers) > 1:
        a, b = sorted(cluster.rng.sample(workers, 2))
        cluster.network.cut((a, b), 1 + int(cluster.rng.random() * CUT_TICKS))


FAULTS: dict[Callable[[Cluster], None], int] = {
    crash_worker: 5,
    zombie_worker: 4,
    break_stream: 4,
    kill_task: 4,
    lose_result: 2,
    speculate: 5,
    restart_query: 4,
    crash_driver: 2,
    crash_before_commit: 2,
    run_batch_twice: 2,
    skip_lanes: 1,
    swallow_error: 1,
    fail_writes: 3,
    fail_loads: 2,
    fail_user_code: 2,
    fail_starts: 2,
    partition: 4,
}
"""Every fault with its weight in the draw."""

MOVE_FAULTS: dict[Callable[[Cluster], None], int] = {
    crash_source: 4,
    crash_target: 4,
    zombie_source: 3,
    zombie_target: 3,
    lose_target: 2,
    partition_peers: 3,
    break_stream: 2,
    kill_task: 2,
    restart_query: 2,
    fail_loads: 2,
    fail_writes: 1,
    crash_driver: 1,
}
"""Faults that strike soon after a reconfiguration has begun."""
