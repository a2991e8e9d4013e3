"""Workers on the hosts of a Spark cluster: `SparkHosts`."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.resource import ResourceProfile
from pyspark.sql import SparkSession

from anabranch.errors import InvalidArgument
from anabranch.model.host import DRIVER, HostFacts
from anabranch.model.ids import HostId
from anabranch.processes.agent_config import AgentConfig
from anabranch.processes.host_source import HostSource, KnownHosts
from anabranch.spark.agent_jobs import AGENT_CPUS, ELSEWHERE, AgentJob, is_static
from anabranch.spark.carriers import CarrierPlan
from anabranch.spark.dedicated import ANYWHERE, check_dedicated, dedicated_profile
from anabranch.spark.executors import Executor, Executors
from anabranch.spark.slow_after_loss import slow_after_loss
from anabranch.transport.auth import Credentials

_log = logging.getLogger("anabranch.service")

LOOK_SECONDS, CALM_SECONDS = 1.0, 5.0
"""How often to ask Spark: while something is under way, and when each host has its agent."""

EXPECT_SECONDS = 60.0
"""How long the first workers wait for the agents of all hosts."""

GRACE_SECONDS = 2.0
"""Spark usually says within a second that a task has ended. A host whose agent is lost, and whose
task runs on according to Spark, is one that Spark cannot reach either."""

STOP_SECONDS = 10.0
"""For agents to return, which have been told; then their jobs are cancelled."""

IN_VAIN = "has an agent already"
"""Said to an agent whose dedicated executor is on the host of another one."""

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class SparkHosts(HostSource):
    """Workers run on the hosts of Spark's executors. Spark carries an agent on each.

    The default on a cluster.

    Parameters
    ----------
    workers_per_host : int, optional
        The most workers of a host. Default: as many as are asked for, or as `memory` suffices for.
    hosts : int, optional
        The most hosts. Default: all that have executors; also those that come later.
    memory : int or str, optional
        What all workers of a host together may use, in bytes or as "8g". A worker counts as 256
        MiB and `state_memory_bytes`. Default: the limit of the container or machine. State is
        outside of Spark's memory: on YARN and Kubernetes, `spark.executor.memoryOverhead` has to
        have room for it.
    labels : dict of str to dict, optional
        Labels of hosts by name: {"h1": {"site": "berlin"}}.
    dedicated : int, optional
        So many executors carry agents and no lanes; Spark makes them for the service, each with
        `memory` beside its heap. Needs dynamic allocation. Default: agents are in the executors
        that lanes use. There is one agent for each host: more executors than hosts are in vain.
    port : int
        Port on which the service listens. Default: any that is free.

    Notes
    -----
    Each agent takes a slot of its executor, unless the session was made with
    `spark.task.cpus=0.99`: then it takes none.
    """

    def __init__(
        self,
        workers_per_host: int | None = None,
        hosts: int | None = None,
        memory: int | str | None = None,
        labels: dict[str, dict[str, str]] | None = None,
        port: int = 0,
        dedicated: int | None = None,
    ) -> None:
        given: Any
        wholes = {"workers_per_host": workers_per_host, "hosts": hosts, "dedicated": dedicated}
        for name, given in wholes.items():
            if given is not None and (not _is_whole(given) or given < 1):
                raise InvalidArgument(f"{name} must be a whole number from 1, got {given!r}.")
        if hosts is not None and dedicated is not None:
            raise InvalidArgument("Give hosts or dedicated: each dedicated executor is a host.")
        self._capacity, self._hosts_max = workers_per_host, hosts or dedicated
        self._dedicated = dedicated
        self._profile: ResourceProfile | None = None
        """Of the executors that are for agents alone."""
        self._memory = None if memory is None else memory_bytes(memory)
        self._labels, self.port = labels or {}, port
        self._context: SparkContext | None = None
        self._jobs: dict[HostId, AgentJob] = {}
        self._lost_since: dict[AgentJob, float] = {}
        """Jobs whose agent is lost, although Spark takes its task for running."""
        self._news, self._is_over = threading.Event(), False
        self._is_calm = False
        self._thread: threading.Thread | None = None

    def bind(self, context: SparkContext) -> None:
        """The Spark that carries the agents."""
        if self._thread is not None:
            raise InvalidArgument("This SparkHosts belongs to another service. Make a new one.")
        if self._dedicated is not None:
            check_dedicated(context)
            self._profile = dedicated_profile(self._memory)
        self._context = context

    def start(self, registry: KnownHosts, address: str, credentials: Credentials) -> None:
        """Carry an agent to each host, from now on."""
        assert self._context is not None
        self._executors = Executors(self._context)
        self._registry, self._plan = registry, CarrierPlan(self._hosts_max)
        self._address, self._credentials = address, credentials
        found = self._executors.active()
        count = self._dedicated or len({executor.host for executor in found}) or 1
        registry.expect(min(count, self._hosts_max or count), EXPECT_SECONDS)
        registry.on_change(self._news.set)
        share = float(self._spark.getConf().get("spark.task.cpus", "1"))
        lost = slots_lost(found, share, is_static(self._spark))
        if self._dedicated is None and (sentence := lost):
            _log.warning("%s", sentence)
        if sentence := slow_after_loss(self._spark.getConf().get):
            _log.warning("%s", sentence)
        self._thread = threading.Thread(target=self._watch, name="anabranch-spark", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what has not returned by itself."""
        self._is_over = True
        self._news.set()
        if self._thread is None:
            return
        self._thread.join(STOP_SECONDS)
        jobs = [job for job in self._jobs.values() if job.ending is None]
        limit = time.monotonic() + STOP_SECONDS
        for job in jobs:
            job.join(max(0.0, limit - time.monotonic()))
            if job.ending is None:
                _cancel(job)
        for job in jobs:
            job.join(1.0)

    # -- in a thread of its own --

    def _watch(self) -> None:
        while not self._is_over:
            try:
                self._look()
            except Exception:  # Spark is busy, or stops; looked at again soon
                _log.debug("Spark's hosts were not looked at", exc_info=True)
            self._news.wait(CALM_SECONDS if self._is_calm else LOOK_SECONDS)
            self._news.clear()

    def _look(self) -> None:
        there = self._registry.hosts()
        for host, job in list(self._jobs.items()):
            if job.ending is not None:
                self._ended(host, job)
            elif self._where(host, job) not in there and job.is_lost():
                _cancel(job)
        self._tell_of_lost()
        present = self._places()
        is_full = present <= set(self._jobs) or len(self._jobs) == self._hosts_max
        hosts = {self._where(place, job) for place, job in self._jobs.items()}
        self._is_calm = is_full and hosts <= set(there)
        for host in self._plan.needed(present, time.monotonic()):
            if self._is_over:
                return
            self._plan.began(host, time.monotonic())
            config = self._config(host if self._profile is None else ANYWHERE)
            self._jobs[host] = AgentJob(
                self._spark, config, self._news.set, self._labels, self._profile
            )

    def _places(self) -> set[HostId]:
        """Where there shall be agents: hosts of executors, or executors that are still to come."""
        if self._dedicated is not None:
            return {HostId(f"dedicated {n}") for n in range(1, self._dedicated + 1)}
        return {executor.host for executor in self._executors.active()}

    def _where(self, place: HostId, job: AgentJob) -> HostId:
        """The host of a job: its place, or the one where Spark has made an executor for it."""
        if self._dedicated is None:
            return place
        for host, shown in self._registry.hosts().items():
            if shown.carrier == job.carrier:
                job.host = host
        return job.host

    @property
    def _spark(self) -> SparkContext:
        assert self._context is not None
        return self._context

    def _config(self, host: HostId) -> AgentConfig:
        facts = HostFacts(host, self._capacity, dict(self._labels.get(host, {})), self._memory)
        return AgentConfig(self._address, self._credentials, facts)

    def _ended(self, host: HostId, job: AgentJob) -> None:
        assert job.ending is not None
        del self._jobs[host]
        self._lost_since.pop(job, None)
        pause = self._plan.ended(host, time.monotonic())
        if self._is_over:
            return
        is_miss = job.ending.text.startswith(ELSEWHERE) or IN_VAIN in job.ending.text
        level = logging.DEBUG if is_miss else logging.WARNING
        text = f"The agent of host {host} has ended: {job.ending.text}"
        _log.log(level, "%s Another one starts in %g s.", text, pause)

    def _tell_of_lost(self) -> None:
        """Spark hears of hosts that do not answer, so that its tasks run elsewhere."""
        now, there, lost = time.monotonic(), self._registry.hosts(), self._registry.lost()
        for place, job in self._jobs.items():
            host = self._where(place, job)
            if host in there:
                self._lost_since.pop(job, None)
                job.has_joined = job.has_joined or there[host].carrier == job.carrier
            if host not in lost or not job.has_joined or job.ending is not None:
                continue
            if now - self._lost_since.setdefault(job, now) < GRACE_SECONDS:
                continue
            _log.warning("Spark hears that host %s is lost: %s", host, lost[host])
            self._executors.are_lost(host, f"Host {host} is lost: {lost[host]}")
            _cancel(job)


def source_of(spark: SparkSession, hosts: object) -> object:
    """Where hosts come from, with the default for this Spark."""
    if hosts is None:
        hosts = DRIVER if is_local(spark.sparkContext) else SparkHosts()
    if isinstance(hosts, SparkHosts):
        hosts.bind(spark.sparkContext)
    return hosts


def own_address(spark: SparkSession) -> str:
    """The driver's, as executors reach it."""
    if is_local(spark.sparkContext):
        return "127.0.0.1"
    return str(spark.sparkContext.getConf().get("spark.driver.host"))


def is_local(context: SparkContext) -> bool:
    """Whether all tasks run in the driver's process."""
    return bool(re.fullmatch(r"local(\[.*\])?", str(context.master)))


def memory_bytes(amount: int | str) -> int:
    """An amount of memory, as bytes or as text like Spark's."""
    if _is_whole(amount) and int(amount) > 0:
        return int(amount)
    if isinstance(amount, str):
        text = amount.strip().lower().removesuffix("b")
        number, unit = (text[:-1], text[-1]) if text and text[-1] in UNITS else (text, "")
        if number.isdecimal() and int(number) > 0:
            return int(number) * UNITS[unit]
    raise InvalidArgument(f'memory must be bytes or a text such as "8g", got {amount!r}.')


def slots_lost(executors: Sequence[Executor], share: float, is_static: bool) -> str | None:
    """What to set so that agents take no slots of lanes; None: they take none.

    `share` is `spark.task.cpus`; there is one agent for each host.
    """
    agent = AGENT_CPUS if is_static else share
    hosts = {executor.host: executor for executor in executors}
    lost = sum(_slots(e.cores, share) - _slots(e.cores - agent, share) for e in hosts.values())
    if not lost:
        return None
    total = sum(_slots(executor.cores, share) for executor in executors)
    taken = f"Agents take {lost} of Spark's {total} slots."
    if not is_static:
        return f"{taken} With dynamic allocation an agent is a task like any other."
    return (
        f"{taken} To lose none, set spark.task.cpus={0.99 * share:g} when you make the Spark "
        "session; later it has no effect."
    )


def _slots(cores: float, share: float) -> int:
    """Tasks that an executor runs at a time."""
    return max(0, math.floor(cores / share + 1e-9))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cancel(job: AgentJob) -> None:
    try:
        job.cancel()
    except Exception as error:  # Spark has stopped
        _log.debug("The agent's job on host %s was not cancelled: %s", job.host, error)
