"""Where a query runs: on the state service, or on Spark alone; and how its state moves there."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import OpenLoop
from anabranch.service import StateService
from anabranch_bench.results.cases import Case
from anabranch_bench.results.run_result import MeasuredMove

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

    service: StateService | None = None
    """None: there are no workers."""

    @abstractmethod
    def make(self, schedule: Path) -> DataFrame:
        """The query, for LoadedQuery."""

    @abstractmethod
    def begin_move(self, query: LoadedQuery, load: OpenLoop, case: Case, workers: int) -> Moving:
        """Ask for so many workers (or partitions)."""


class ServiceSide(Side):
    """On a state service."""

    service: StateService

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
        start, options = time.time(), dict(case.options)
        handle = self.service.rescale(workers, strategy=case.strategy, dry_run=False, **options)
        return ServiceMove(handle, start)


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
