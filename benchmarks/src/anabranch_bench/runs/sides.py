"""Where a query runs: on the state service, or on Spark alone; and how its state moves there."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.loaded_query import LoadedQuery, Say
from anabranch.loadtest.schedule import OpenLoop
from anabranch.service import StateService
from anabranch_bench.probes.memory import pids, written_bytes
from anabranch_bench.results.cases import Case
from anabranch_bench.results.run_result import MeasuredMove

LOAD_SECONDS_MAX = 1800.0

Build = Callable[[StateService, Path], DataFrame]
"""The query on a service, following a schedule file."""


class Moving(Protocol):
    """A move that was begun."""

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, at most that much later; raises if it has failed."""

    @property
    def progress(self) -> float | None:
        """From 0 to 1; None: nobody knows."""

    def measured(self, load: OpenLoop) -> MeasuredMove:
        """When it was, and what it did; until now if it has not ended."""


class Side(ABC):
    """A place for one query, from its start to its end."""

    @abstractmethod
    def make(self, schedule: Path) -> DataFrame:
        """The query, for LoadedQuery."""

    @abstractmethod
    def begin_move(self, query: LoadedQuery, load: OpenLoop, case: Case, workers: int) -> Moving:
        """Ask for so many workers (or partitions)."""

    def standby(self, workers: int) -> MoveHandle | None:
        """Keep replicas for so many workers; None where there are none."""
        return None

    def in_memory(self) -> float:
        """Share of the state: after a restart it may come in the background."""
        return 1.0

    def groups(self) -> Mapping[str, int]:
        """Key groups of each worker."""
        return {}

    def pids(self) -> list[int]:
        """The worker processes of now."""
        return []

    def written_bytes(self) -> int:
        """What they have written so far."""
        return 0


class ServiceSide(Side):
    """On a state service."""

    def __init__(self, service: StateService, build: Build) -> None:
        self.service = service
        self._build = build

    @classmethod
    @contextmanager
    def started(
        cls, spark: SparkSession, folder: Path, build: Build, **settings: Any
    ) -> Iterator[ServiceSide]:
        """A service of its own in this folder."""
        with StateService(spark, str(folder / "state"), **settings) as service:
            yield cls(service, build)

    def make(self, schedule: Path) -> DataFrame:
        """As it was built."""
        return self._build(self.service, schedule)

    def begin_move(self, query: LoadedQuery, load: OpenLoop, case: Case, workers: int) -> Moving:
        """Rescale."""
        assert case.strategy is not None
        start = time.time()
        options = dict(case.options)
        handle = self.service.rescale(workers, strategy=case.strategy, dry_run=False, **options)
        return ServiceMove(handle, start)

    def standby(self, workers: int) -> MoveHandle | None:
        """As the strategy `rhino` has them."""
        return self.service.standby(workers)

    def in_memory(self) -> float:
        """Of the operator that has the least."""
        return in_memory(self.service)

    def groups(self) -> Mapping[str, int]:
        """As the service tells."""
        return {n: w["key_groups"] for n, w in self.service.status()["workers"].items()}

    def pids(self) -> list[int]:
        """Of the service."""
        return pids(self.service)

    def written_bytes(self) -> int:
        """0 where the system does not tell."""
        return written_bytes(self.service)


class ServiceMove:
    """A rescale of a service."""

    def __init__(self, handle: MoveHandle, start: float) -> None:
        self._handle = handle
        self._start = start
        self._end: float | None = None

    def wait(self, seconds: float) -> bool:
        """Remembers when it ended."""
        if self._end is None and self._handle.wait(seconds):
            self._end = time.time()
        return self._end is not None

    @property
    def progress(self) -> float | None:
        """By key groups."""
        return self._handle.progress

    def measured(self, load: OpenLoop) -> MeasuredMove:
        """With the service's report."""
        report, end = self._handle.report(), self._end or time.time()
        window = TimeWindow(self._start - load.started, end - load.started)
        return MeasuredMove(window, report.as_json(), str(report))


def in_memory(service: StateService) -> float:
    """Share of the state, of the operator that has the least."""
    operators = service.status()["operators"].values()
    return min((operator["in_memory"] for operator in operators), default=1.0)


def wait_until_in_memory(share: Callable[[], float], say: Say) -> None:
    """That the state comes there is not what is measured."""
    limit = time.time() + LOAD_SECONDS_MAX
    while (known := share()) < 1:
        say(f"the state is coming into memory, {known:.0%}")
        time.sleep(0.1)
        if time.time() > limit:
            raise AnabranchError("The state was not in memory after half an hour.")
