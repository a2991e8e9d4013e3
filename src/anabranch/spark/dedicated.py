"""Executors that Spark makes for agents alone, by a resource profile: no lane ever runs there."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace

from pyspark import SparkContext
from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId
from anabranch.processes.agent_config import AgentConfig

ANYWHERE = HostId("")
"""The host of an agent that runs wherever Spark makes an executor for it."""

HEAP = "512m"
"""Of the executor's JVM, which does nothing but carry the agent; Spark takes no less."""


def check_dedicated(context: SparkContext) -> None:
    """Refuse what Spark cannot do."""
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true":
        raise InvalidArgument(
            "SparkHosts(dedicated=...) needs dynamic allocation: only then does Spark make "
            "executors of several kinds. Set spark.dynamicAllocation.enabled=true when you make "
            "the Spark session, or leave dedicated out."
        )


def dedicated_profile(memory_bytes: int | None) -> ResourceProfile:
    """An executor with room for one agent and, beside its heap, for the agent's workers."""
    executor = ExecutorResourceRequests().cores(1).memory(HEAP)
    if memory_bytes is not None:
        executor = executor.memoryOverhead(f"{max(1, memory_bytes >> 20)}m")
    task = TaskResourceRequests().cpus(1)
    return ResourceProfileBuilder().require(executor).require(task).build


def at_host(
    config: AgentConfig, found: HostId | None, labels: Mapping[str, Mapping[str, str]]
) -> AgentConfig:
    """What an agent is told, now that it is known where it runs."""
    host = found or HostId(socket.gethostname())
    facts = replace(config.facts, host=host, labels=dict(labels.get(host, {})))
    return replace(config, facts=facts)
