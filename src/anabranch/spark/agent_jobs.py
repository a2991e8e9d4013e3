"""Spark jobs of one task that carry the agents of hosts.

A job for each agent, as only jobs can be cancelled singly. Not barrier: one failure would end all
of them.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import RDD, SparkContext, TaskContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests
from pyspark.serializers import CPickleSerializer

from anabranch.model.ids import HostId
from anabranch.processes.agent_config import SPARK, AgentConfig
from anabranch.spark.dedicated import ANYWHERE, at_host

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_log = logging.getLogger("anabranch.service")

AGENT_CPUS = 0.005
"""What an agent asks of its executor: next to nothing, where Spark takes fractions."""

COPY_SECONDS_MAX = 3600.0
"""A copy of an agent's task waits until the driver cancels it, for so long at most."""

ELSEWHERE = "elsewhere"
"""How an ending begins of a task that Spark ran on another host than it was meant for."""

NO_LABELS: Mapping[str, Mapping[str, str]] = {}

_numbers = itertools.count(1)


# -- in the task --


def carry(config: AgentConfig, labels: Mapping[str, Mapping[str, str]] = NO_LABELS) -> str:
    """Be the agent of a host until it ends; returns why.

    `labels` are those of hosts by name, for an agent that may run anywhere. Never raises: Spark
    counts tasks that fail.
    """
    try:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            return _wait_as_copy()
        executor, host = executor_here()
        if config.facts.host == ANYWHERE:
            config = at_host(config, host, labels)
        elif host is not None and host != config.facts.host:
            return f"{ELSEWHERE}: Spark ran the agent of host {config.facts.host} on {host}."
        from anabranch.processes.host_agent import run_agent

        address = config.address or _address_of(host)
        return run_agent(replace(config, executor=executor, address=address))
    except Exception as error:
        return f"The agent could not start: {type(error).__name__}: {error}"


def _wait_as_copy() -> str:
    """Spark runs a task again, or a second time beside the first.

    A name of a carrier is used once. If the first is gone, the driver cancels this and starts
    another job. If it is not, the end of this one would be the end of that: so it waits.
    """
    limit = time.monotonic() + COPY_SECONDS_MAX
    while time.monotonic() < limit:
        time.sleep(0.2)
    return "A copy of an agent's task is not needed."


def executor_here() -> tuple[str | None, HostId | None]:
    """Name and host of the executor that this task runs in, as Spark calls them.

    Spark does not tell Python. They are in the command line of the executor's JVM, an ancestor.
    """
    for words in _ancestors(os.getppid()):
        found = dict(itertools.pairwise(words))
        if "--executor-id" in found and "--hostname" in found:
            return found["--executor-id"], HostId(found["--hostname"])
    return None, None


def _ancestors(pid: int) -> Iterable[list[str]]:
    """Command lines of a process and of those above it, where the system tells them."""
    while pid > 1:
        try:
            folder = Path("/proc") / str(pid)
            yield (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            pid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _address_of(host: HostId | None) -> str | None:
    """The host's name if it is an address; else the agent finds out by its connection."""
    for candidate in (host, os.environ.get("SPARK_LOCAL_IP")):
        if candidate and candidate.count(".") == 3 and candidate.replace(".", "").isdecimal():
            return candidate
    return None


# -- in the driver --


@dataclass(slots=True)
class JobEnding:
    """How a job ended."""

    text: str
    is_normal: bool
    """Whether the task returned; else the job was cancelled or failed."""


class AgentJob:
    """One job: submitted by a thread of its own, which waits for its end."""

    def __init__(
        self,
        context: SparkContext,
        config: AgentConfig,
        on_end: Callable[[], None],
        labels: Mapping[str, Mapping[str, str]] = NO_LABELS,
        profile: ResourceProfile | None = None,
    ) -> None:
        """With a profile, in an executor of that kind, on any host; `labels` are of all hosts."""
        self.host = config.facts.host
        self._profile, self._labels = profile, labels
        self.group = f"anabranch-agent-{next(_numbers)}-{self.host or 'dedicated'}"
        self.ending: JobEnding | None = None
        """None: it runs."""
        self._context = context
        self.carrier = f"{SPARK} {self.group}"
        self.has_joined = False
        """Whether its agent has run workers."""
        self._config = replace(config, carrier=self.carrier)
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name=self.group, daemon=True)
        self._thread.start()

    def is_lost(self) -> bool:
        """Whether its first attempt has ended while the job goes on with another one."""
        status, tracker = self._spark.statusStore(), self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self.group):
            info = tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                tasks = status.taskList(stage, 0, 100)
                found = [tasks.apply(n) for n in range(tasks.size())]
                firsts = [task.status() for task in found if task.attempt() == 0]
                if len(found) > 1 and "RUNNING" not in firsts:
                    return True
        return False

    def cancel(self) -> None:
        """End it, whatever its task does."""
        self._context.cancelJobGroup(self.group)

    def join(self, seconds: float) -> None:
        """Wait for its end, for so long at most."""
        self._thread.join(seconds)

    @property
    def _spark(self) -> JavaObject:
        return self._context._jsc.sc()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(
                self.group,
                f"Anabranch: agent of host {self.host or 'that Spark chooses'}",
                interruptOnCancel=True,
            )
            (said,) = self._task().collect()
            self.ending = JobEnding(said, True)
        except BaseException as error:  # cancelled, executors lost, Spark stopped
            self.ending = JobEnding(_reason(error), False)
        finally:
            self._on_end()

    def _task(self) -> RDD[str]:
        config, labels = self._config, dict(self._labels)

        def run(_: Any) -> str:
            return carry(config, labels)

        if self._profile is not None:
            return self._context.parallelize([0], 1).map(run).withResources(self._profile)
        task = _near(self._context, self.host).map(run)
        if is_static(self._context):
            requests = TaskResourceRequests().cpus(AGENT_CPUS)
            try:
                return task.withResources(ResourceProfileBuilder().require(requests).build)
            except Exception as error:
                _log.debug("An agent takes a whole slot: %s", error)
        return task


def _reason(error: BaseException) -> str:
    """What a person wants to know of a job that Spark has ended."""
    lines = str(error).splitlines() or [type(error).__name__]
    said = next((line for line in lines if "SparkException" in line), lines[0])
    return said.partition("SparkException:")[2].strip() or said[:300]


def is_static(context: SparkContext) -> bool:
    """Whether executors stay; with dynamic allocation, a task of its own kind gets executors of
    its own.
    """
    return context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true"


def _near(context: SparkContext, host: HostId) -> RDD[Any]:
    """One row that Spark would like to process on a host: a hint, which it may leave aside."""
    jvm: Any = context._jvm
    try:
        as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        hosts, rows = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        hosts.add(str(host))
        row = bytearray(pickle.dumps(0))
        rows.add(jvm.scala.Tuple2(row, as_scala(hosts).toSeq()))
        kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        made = context._jsc.sc().makeRDD(as_scala(rows).toSeq(), kind)
        return RDD(made.toJavaRDD(), context, CPickleSerializer())
    except Exception as error:  # a Spark that shows less of its JVM
        _log.debug("Agents are carried without preference for a host: %s", error)
        return context.parallelize([0], 1)
