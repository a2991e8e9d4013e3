"""The simulated Spark driver: batches in order, task attempts, restarts, and an idempotent sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, EpochGap, IncompleteBatch, ServiceUnavailable
from anabranch.model.ids import HostId
from anabranch.simulation.checks import Failure
from anabranch.simulation.lane import SimulatedLane
from anabranch.simulation.oracle import Outputs

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster

EXECUTOR_TICKS = 150
"""After so long, Spark misses an executor."""
LAUNCH_TICKS, COMMIT_TICKS, KILL_TICKS = 3, 4, 30
SLEEP_SHARE, SLEEP_TICKS = 0.8, 150
"""Batches before which a query that sleeps has no rows for a while."""
FAILURES_MAX = 4
"""Spark's default for failures of one task before the query fails."""


class SparkDriver:
    """Runs the batches of one query; `committed` and `sink` stand for what is on disk."""

    def __init__(self, cluster: Cluster, lanes: int) -> None:
        self.cluster = cluster
        self.lanes = lanes
        self.committed = -1
        self.sink: dict[int, dict[int, Outputs]] = {}
        self.epoch = 0
        self.run = 0
        """Counts executions of batches; tasks of an older one are not listened to."""
        self.attempts = 0
        self.tasks: list[SimulatedLane] = []
        self.done: dict[int, SimulatedLane] = {}
        self.failures: dict[int, int] = {}
        self.failed_on: dict[int, set[HostId]] = {}
        """Hosts on which attempts of lanes have failed: Spark can be told to avoid them."""
        self.actions_left = 0
        """Further times that foreachBatch runs the plan of this batch."""
        self.skips_lanes = False
        """The next execution leaves lanes out, as `head()` in foreachBatch does."""
        self.swallows_errors = False
        """The next failure of a task ends the batch as if it were done: foreachBatch caught it."""
        self.crashes_before_commit = False
        self.may_be_refused = False
        """Spark has committed a batch whose lanes did not all run: the next one must not pass."""
        self.is_refused = False
        self.is_running = False
        self.is_stopped = False
        """Its user has ended it, perhaps in the middle of a batch, and does not start it again."""

    # -- batches --

    def start(self, lanes: int | None = None) -> None:
        """Start (or restart) the query at the first batch that Spark has not committed."""
        self.stop()
        self.lanes = lanes or self.lanes
        self.epoch = self.committed + 1
        self.actions_left = 0
        self.is_stopped = False
        self.cluster.scheduler.note(f"query starts at batch {self.epoch} with {self.lanes} lanes")
        self._execute_when_awake()

    def stop(self) -> None:
        """End the query; its tasks are killed, but not at once."""
        self.is_running = False
        self.run += 1
        for task in self.tasks:
            self._kill_later(task)
        self.tasks = []

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return (
            self.is_refused
            or self.is_stopped
            or self.committed + 1 == len(self.cluster.oracle.batches)
        )

    def _execute_when_awake(self) -> None:
        """Run the next batch, as soon as there are rows for it."""
        rng = self.cluster.sleep_rng
        if rng is None or rng.random() >= SLEEP_SHARE:
            self._execute()
            return
        self.is_running = True
        delay = int(rng.random() * SLEEP_TICKS)
        self.cluster.scheduler.after(delay, "query wakes up", self._wake_up, self.run)

    def _wake_up(self, run: int) -> None:
        if run == self.run:
            self._execute()

    def _execute(self) -> None:
        self.run += 1
        self.is_running = True
        self.tasks, self.done, self.failures = [], {}, {}
        self.failed_on = {}
        self.wanted = list(range(self.lanes))
        if self.skips_lanes and self.lanes > 1 and not self._is_last:  # a next batch must find it
            self.wanted = self.wanted[: 1 + int(self.cluster.rng.random() * (self.lanes - 1))]
        self.skips_lanes = False
        for lane in self.wanted:
            self.launch(lane)

    @property
    def _is_last(self) -> bool:
        return self.epoch + 1 == len(self.cluster.oracle.batches)

    def launch(self, lane: int) -> None:
        """Start an attempt of a lane."""
        self.attempts += 1
        task = SimulatedLane(self.cluster, self.run, self.epoch, lane, self.lanes, self.attempts)
        self.tasks.append(task)
        scheduler = task.scheduler
        scheduler.after(scheduler.delay(LAUNCH_TICKS), "", task.begin)
        if self.cluster.hosts is not None:
            self.cluster.scheduler.after(EXECUTOR_TICKS, "", self._look_for, task)

    def _look_for(self, task: SimulatedLane) -> None:
        """Spark runs a task elsewhere whose executor it does not reach."""
        hosts = self.cluster.hosts
        if hosts is None or not self._counts(task) or hosts.is_closed:
            return
        if hosts.reaches(self.cluster.coordinator, task):
            self.cluster.scheduler.after(EXECUTOR_TICKS, "", self._look_for, task)
        else:
            self._relaunch(task)

    def host_lost(self, host: HostId) -> None:
        """The service says that a host is lost: so are the tasks on it."""
        for task in [task for task in self.tasks if task.host == host and self._counts(task)]:
            self._relaunch(task)

    def _counts(self, task: SimulatedLane) -> bool:
        return task.run == self.run and task in self.tasks and task.lane not in self.done

    def _relaunch(self, task: SimulatedLane) -> None:
        self.tasks.remove(task)
        self._kill_later(task)
        if not self._has_other_attempt(task):
            self.cluster.count("tasks_elsewhere")
            self.launch(task.lane)

    def task_done(self, task: SimulatedLane) -> None:
        """An attempt has all outputs; the first one counts, as in Spark."""
        if task.run != self.run or task.lane in self.done:
            return
        self.done[task.lane] = task
        for other in self.tasks:
            if other.lane == task.lane and other is not task:
                self._kill_later(other)
        if len(self.done) == len(self.wanted):
            self._batch_done()

    def _batch_done(self) -> None:
        is_whole = len(self.wanted) == self.lanes
        if is_whole:
            outputs: dict[int, Outputs] = {}
            for task in self.done.values():
                outputs.update(task.outputs)
            self.cluster.checks.delivered(self.epoch, outputs)
            self.sink[self.epoch] = outputs
        if self.crashes_before_commit:
            self.crashes_before_commit = False
            self.cluster.crash_driver()
        elif self.actions_left:
            self.actions_left -= 1
            self._execute()
        else:
            scheduler = self.cluster.scheduler
            label = f"Spark commits batch {self.epoch}"
            delay = scheduler.delay(COMMIT_TICKS)
            scheduler.after(delay, label, self._commit, self.run, is_whole)

    def _commit(self, run: int, is_whole: bool) -> None:
        if run != self.run:
            return
        self.may_be_refused |= not is_whole
        self.committed = self.epoch
        self.epoch += 1
        if not self.is_finished:
            self._execute_when_awake()

    # -- failures --

    def task_failed(self, task: SimulatedLane, error: AnabranchError) -> None:
        """An attempt ended with an error."""
        if task.run != self.run or task.lane in self.done:
            return  # a late or needless attempt: nobody asks for its result
        if isinstance(error, IncompleteBatch | EpochGap):
            self._refused(task, error)
            return
        if self.swallows_errors and not self._is_last:
            self._swallow()
            return
        self.failures[task.lane] = self.failures.get(task.lane, 0) + 1
        self.failed_on[task.lane] = {*self.failed_on.get(task.lane, ()), task.host}
        if self.failures[task.lane] >= FAILURES_MAX:
            self._query_failed(error)
        elif not self._has_other_attempt(task):
            self.launch(task.lane)

    def _swallow(self) -> None:
        self.swallows_errors = False
        self.stop()
        label = f"Spark commits batch {self.epoch} in spite of an error"
        self.cluster.scheduler.after(1, label, self._commit, self.run, False)

    def _has_other_attempt(self, task: SimulatedLane) -> bool:
        return any(t.lane == task.lane and t.is_alive for t in self.tasks)

    def _refused(self, task: SimulatedLane, error: AnabranchError) -> None:
        if not self.may_be_refused:
            raise Failure(f"{task.name} failed without a reason: {error}")
        self.stop()
        self.is_refused = True

    def _query_failed(self, error: AnabranchError) -> None:
        if isinstance(error, ServiceUnavailable) and not self.cluster.coordinator.has_given_up:
            raise Failure(f"the query failed without a reason: {error}")
        self.cluster.crash_driver()  # the operator mends the cause and starts anew

    def _kill_later(self, task: SimulatedLane) -> None:
        if task.is_alive:
            scheduler = self.cluster.scheduler
            delay = scheduler.delay(KILL_TICKS)
            coordinator, network = self.cluster.coordinator, self.cluster.network
            network.send_late(delay, coordinator, task, f"kill {task.name}", task.kill)
