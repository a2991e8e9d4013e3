"""Real coordinator, real workers, real store; Spark's tasks are threads."""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from tests.integration import counting

from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.query_clock import QueryClock
from anabranch.coordinator.service_hosts import HostSettings
from anabranch.durability.blobs import BlobStore
from anabranch.durability.store import StateStore
from anabranch.model.ids import Epoch, Lane
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processes.host_source import HostSource
from anabranch.processes.launcher import Launcher, LocalLauncher
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import BatchTimes
from anabranch.spark.lane import LaneConfig, LaneRun, LaneTask

cloudpickle.register_pickle_by_value(sys.modules[counting.__name__])

KEYSPACE = KeySpace(32, 4)
QUERY = "query-1"


class FixedClock:
    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        return BatchTimes(1000 + epoch, 0, 0)

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        pass

    def is_running(self, operator: str, query_id: str) -> bool | None:
        return None


def rows_of(keys: Iterable[int]) -> pa.RecordBatch:
    """Rows as Spark would send them; any hash does as long as it is a function of the key."""
    numbers = np.fromiter(keys, dtype=np.int64)
    hashes = numbers * np.int64(0x5851F42D4C957F2D)
    schema = pa.schema([pa.field(HASH, pa.int64(), nullable=False), ("k", pa.int64())])
    return pa.record_batch([pa.array(hashes), pa.array(numbers)], schema=schema)  # as Spark has it


AnyCluster = TypeVar("AnyCluster", bound="Cluster")


class Cluster:
    """A service on a folder or other location, with the counting operator."""

    clock: Any = FixedClock()

    def __init__(
        self,
        folder: Path | str,
        workers: int = 2,
        definition: Any = None,
        clock: QueryClock | None = None,
        user_code_timeout_s: float | None = None,
        tls: bool | None = None,
        hosts: HostSource | None = None,
        host_timeout: float = 10.0,
        no_host_timeout: float = 300.0,
        local: Callable[[], Launcher] = LocalLauncher,
        **settings: Any,
    ) -> None:
        shared = settings.get("shared", False)
        self.store = StateStore(BlobStore(str(folder), shared=shared)).open()
        self._definition_ids: dict[str, int] = {}
        self._attempts = itertools.count(1)
        config = functools.partial(
            WorkerConfig,
            host="127.0.0.1",
            location=str(folder),
            key_groups=KEYSPACE.groups,
            bins=KEYSPACE.bins,
            **settings,
        )
        self.coordinator = Coordinator(
            self.store,
            clock or self.clock,
            KEYSPACE,
            workers,
            config,
            "127.0.0.1",
            checkpoint=settings.get("checkpoint", "changelog"),
            user_code_timeout_s=user_code_timeout_s,
            tls=tls,
            hosts=HostSettings(hosts, host_timeout, no_host_timeout, local=local),
        )
        self.register(definition or counting.Counting())

    def register(self, definition: Any, name: str = "counts", side: Any = None) -> int:
        number = self.coordinator.register(name, definition, [], side)
        self._definition_ids[name] = number
        return number

    def run_lane(
        self,
        epoch: int,
        lane: int,
        lanes: int,
        batch: pa.RecordBatch,
        query: str = QUERY,
        rows_from_lane: int | None = None,
        attempt: int | None = None,
        operator: str = "counts",
        open_seconds: float = 0,
    ) -> list[dict[str, Any]]:
        """One task; its end mark comes some time after its rows."""
        config = LaneConfig(
            self.coordinator.address,
            self.coordinator.lane_credentials,
            operator,
            self._definition_ids[operator],
            KEYSPACE,
            lanes,
        )
        task = LaneTask(query, Epoch(epoch), Lane(lane), attempt or next(self._attempts))
        groups = KEYSPACE.group_of(batch.column(HASH).to_numpy())
        mine = batch.filter(
            pa.array(groups % lanes == (lane if rows_from_lane is None else rows_from_lane))
        )

        def rows() -> Iterator[pa.RecordBatch]:
            if mine.num_rows:
                yield mine
            time.sleep(open_seconds)

        return [row for out in LaneRun(config, task).run(rows()) for row in out.to_pylist()]

    def run_batch(
        self, epoch: int, keys: Iterable[int], lanes: int = 2, query: str = QUERY, **more: Any
    ) -> dict[int, int]:
        """All lanes at once; outputs by key."""
        rows = self.run_lanes(epoch, lanes, rows_of(keys), query=query, **more)
        return {row["k"]: row["n"] for row in rows}

    def run_lanes(
        self, epoch: int, lanes: int, batch: pa.RecordBatch, **more: Any
    ) -> list[dict[str, Any]]:
        """All lanes at once; the outputs of all."""
        with ThreadPoolExecutor(lanes) as pool:
            tasks = [
                pool.submit(self.run_lane, epoch, lane, lanes, batch, **more)
                for lane in range(lanes)
            ]
            return [row for task in tasks for row in task.result()]

    def stop(self) -> None:
        self.coordinator.stop()
        self.store.close()

    def __enter__(self: AnyCluster) -> AnyCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Oracle:
    """The sequential computation."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def run_batch(self, keys: Iterable[int]) -> dict[int, int]:
        changed = {}
        for key in keys:
            self.counts[key] = changed[key] = self.counts.get(key, 0) + 1
        return changed
