"""Spark's executors as the driver knows them: where they are, and that they are gone.

Spark tells Python little about executors, so this asks the driver's JVM.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from anabranch.model.ids import HostId

_log = logging.getLogger("anabranch.service")

DRIVER_ID = "driver"


@dataclass(frozen=True, slots=True)
class Executor:
    """One process of Spark."""

    id: str
    host: HostId
    cores: int


class Executors:
    """Those of one Spark context."""

    def __init__(self, context: SparkContext) -> None:
        self._spark: Any = context._jsc.sc()
        self._jvm: Any = context._jvm

    def active(self) -> list[Executor]:
        """Those that run tasks, as far as Spark knows."""
        found = self._spark.statusStore().executorList(True)
        shown = (found.apply(n) for n in range(found.size()))
        return [
            Executor(each.id(), HostId(each.hostPort().rpartition(":")[0]), each.totalCores())
            for each in shown
            if each.id() != DRIVER_ID
        ]

    def are_lost(self, host: HostId, reason: str) -> list[str]:
        """Tell Spark's scheduler that all executors of a host are gone; returns their names.

        Else Spark waits for spark.network.timeout (120 s) before it runs their tasks elsewhere. The
        cluster manager is asked to replace them: it ends those that are only cut off.
        """
        told: list[str] = []
        for executor in self.active():
            if executor.host != host:
                continue
            try:
                self._replace(executor, reason)
                told.append(executor.id)
            except Exception as error:  # another kind of scheduler; Spark finds out by itself
                _log.warning(
                    "Spark was not told that executor %s on %s is lost: %s. Its tasks run "
                    "elsewhere after spark.network.timeout.",
                    executor.id,
                    host,
                    error,
                )
        return told

    def _replace(self, executor: Executor, reason: str) -> None:
        self._spark.killAndReplaceExecutor(executor.id)
        # The order to end it may never arrive. This is what Spark does after its timeout; nobody
        # counts it against the tasks.
        lost = self._jvm.org.apache.spark.scheduler.ExecutorProcessLost
        why = lost(reason, self._jvm.scala.Option.apply(str(executor.host)), False)
        self._spark.schedulerBackend().removeExecutor(executor.id, why)
