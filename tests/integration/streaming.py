"""A stream of batches that runs beside a test; every batch is compared with the oracle's."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from tests.integration import rig
from tests.integration.harness import KEYSPACE, Cluster, Oracle
from tests.integration.operators import CASES, Case, make_case

from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.service_moves import ServiceMoves
from anabranch.processor.contract import BatchTimes
from anabranch.state.backend import MEMORY


class MovingCluster(Cluster, ServiceMoves):
    """A cluster that can be reconfigured as a service can."""

    def _reconfigurer(self) -> MoveRunner:
        return self.coordinator.moves

    def workers(self) -> dict[str, int]:
        """Key groups of each worker."""
        status = self.coordinator.status()["workers"]
        return {name: worker["key_groups"] for name, worker in status.items()}


def keys_of(epoch: int, count: int = 400, space: int = 300) -> list[int]:
    """Keys of a batch; the same every time."""
    chance = random.Random(epoch)
    return [chance.randrange(space) for _ in range(count)]


class Stream:
    """Batch after batch in a thread, as Spark would run them."""

    def __init__(
        self,
        cluster: Cluster,
        lanes: int = 2,
        pause_seconds: float = 0.02,
        open_seconds: float = 0,
    ) -> None:
        """`pause_seconds` are between batches; `open_seconds` is how long lanes dawdle in one."""
        self.cluster = cluster
        self.oracle = Oracle()
        self.epoch = 0
        self._lanes = lanes
        self._pause = pause_seconds
        self.open_seconds = open_seconds
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-stream", daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error
        assert error is not None or not self._thread.is_alive(), "a batch hangs"

    def batches(self, count: int, seconds_max: float = 60) -> None:
        """Wait until so many more batches have run."""
        wanted = self.epoch + count
        self.until(lambda: self.epoch >= wanted, seconds_max)

    def until(self, condition: Callable[[], bool], seconds_max: float = 60) -> None:
        """Wait for something while batches go on."""
        limit = time.monotonic() + seconds_max
        while not condition():
            if self._error is not None:
                raise self._error
            assert time.monotonic() < limit, f"no progress at batch {self.epoch}"
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._run_batch(self.epoch)
                self.epoch += 1
                self._stopping.wait(self._pause)
        except BaseException as error:
            self._error = error

    def _run_batch(self, epoch: int) -> None:
        keys = keys_of(epoch)
        found = self.cluster.run_batch(epoch, keys, self._lanes, open_seconds=self.open_seconds)
        expected = self.oracle.run_batch(keys)
        assert found == expected, f"batch {epoch}: {_difference(found, expected)}"


def _difference(found: dict[int, int], expected: dict[int, int]) -> str:
    keys = sorted(found.keys() | expected.keys())
    wrong = [(k, found.get(k), expected.get(k)) for k in keys if found.get(k) != expected.get(k)]
    return f"{len(wrong)} of {len(keys)} keys differ (key, found, expected): {wrong[:5]}"


class CaseCluster(MovingCluster):
    """All operators of `operators.py`: timers, TTL, windows, list and map state."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.cases = [make_case(name) for name in CASES]
        super().__init__(folder, workers, clock=CaseClock(self.cases))
        for case in self.cases:
            self.register(case.definition, case.name)


class CaseClock:
    """Each operator's own."""

    def __init__(self, cases: list[Case]) -> None:
        self._cases = {case.name: case for case in cases}

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        return self._cases[operator].times(epoch)

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        pass

    def is_running(self, operator: str, query_id: str) -> bool | None:
        return None


class CaseStream(Stream):
    """A query for every operator, all at once: lanes of one are still open when another commits."""

    def __init__(
        self, cluster: CaseCluster, pause_seconds: float = 0.02, open_seconds: float = 0
    ) -> None:
        super().__init__(cluster, 2, pause_seconds, open_seconds)
        self._cases = [(case, rig.Oracle(case, MEMORY, KEYSPACE)) for case in cluster.cases]

    def _run_batch(self, epoch: int) -> None:
        with ThreadPoolExecutor(len(self._cases)) as pool:
            list(pool.map(self._run_case, range(len(self._cases)), repeat(epoch)))

    def _run_case(self, number: int, epoch: int) -> None:
        case, oracle = self._cases[number]
        table = case.rows(epoch)
        batch = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.columns], schema=table.schema
        )
        dawdling = (1 + number) * self.open_seconds
        rows = self.cluster.run_lanes(
            epoch,
            self._lanes,
            batch,
            operator=case.name,
            query=f"query of {case.name}",
            open_seconds=dawdling,
        )
        found, expected = sorted(repr(row) for row in rows), oracle.run(epoch)
        assert found == expected, f"batch {epoch} of {case.name}"
