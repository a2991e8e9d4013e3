"""Batches without new rows: a source that never has rows, only offsets.

Spark runs such batches only for its own stateful operators. Timers and windows of ours need them
too, so their input is joined by a source whose offset moves on when Spark's own rule would ask for
another batch.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from anabranch.spark.lane import LaneConfig
from anabranch.spark.plan import OperatorPlan
from anabranch.transport.client import Peer
from anabranch.transport.messages.lanes import Tick

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.1
    SupportsTriggerAvailableNow = None  # type: ignore[assignment,misc]

_numbers = itertools.count(1)


class TickReader(DataSourceStreamReader):
    """Offsets that count ticks; no partitions, no rows."""

    def __init__(self, config: LaneConfig, time_mode: str) -> None:
        self._config = config
        self._time_mode = time_mode
        self._must_end = False

    def initialOffset(self) -> dict[str, int]:
        """Before the first tick."""
        return {"tick": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """One more than `start` if a batch should run without rows."""
        return {"tick": start["tick"] + 1} if self._is_due() else start

    def prepareForTriggerAvailableNow(self) -> None:
        """Ticks of event time follow from rows that were there at the start, so they end; those of
        processing time never do."""
        self._must_end = True

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """No rows, so nothing to read."""
        return []

    def read(self, partition: InputPartition) -> Any:
        """Never called: there are no partitions."""
        return iter([])

    def _is_due(self) -> bool:
        if self._must_end and self._time_mode == "processingtime":
            return False
        peer = Peer(self._config.coordinator, self._config.token, "The state service")
        return peer.call(Tick(self._config.operator)).is_due


class OldTickReader(TickReader):
    """For PySpark 4.1, whose sources are not told where to start: ticks are points in time.

    A restarted query may run one batch without rows more than on newer versions.
    """

    def __init__(self, config: LaneConfig, time_mode: str) -> None:
        super().__init__(config, time_mode)
        self._tick = 0

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        """Another offset if a batch should run without rows."""
        if self._is_due():
            self._tick = max(self._tick + 1, time.time_ns() // 1_000_000)
        return {"tick": self._tick}


def tick_reader(config: LaneConfig, time_mode: str) -> TickReader:
    """The reader for the PySpark that is installed."""
    if SupportsTriggerAvailableNow is None:
        return OldTickReader(config, time_mode)
    SupportsTriggerAvailableNow.register(TickReader)
    return TickReader(config, time_mode)


def with_ticks(plan: OperatorPlan, config: LaneConfig) -> DataFrame:
    """The operator's input, joined by ticks if its time mode needs them."""
    if plan.time_mode == "none":
        return plan.input
    time_mode = plan.time_mode
    # Spark looks a source up again when a query starts: each needs a name of its own.
    source = f"anabranch_ticks_{next(_numbers)}"

    class Ticks(DataSource):
        """Carries the connection in its closure: options would show up in query plans."""

        @classmethod
        def name(cls) -> str:
            return source

        def streamReader(self, schema: Any) -> TickReader:
            return tick_reader(config, time_mode)

    session = plan.input.sparkSession
    session.dataSource.register(Ticks)
    ticks = session.readStream.format(source).schema(plan.input.schema).load()
    return plan.input.union(ticks)
