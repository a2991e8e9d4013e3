"""A query and moves that are only pretended: for tests of who does what when."""

from __future__ import annotations

import time

from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import Batch, TimeWindow
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.results.run_result import MeasuredMove


class Query:
    """A batch with all rows that are due, each time somebody looks."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.is_active = True

    def open(self, rate: float) -> OpenLoop:
        self.load = OpenLoop(0, time.time(), rate)
        self._row = 0
        return self.load

    def watch(self, seconds: float) -> None:
        if not self.is_active:
            raise AnabranchError("The measured query failed.")
        time.sleep(min(seconds, 0.005))
        self.collect()

    def collect(self) -> None:
        now = time.time()
        end = self.load.end_of_batch(self._row, now)
        if end > self._row:
            self.batches.append(Batch(self._row, end, now, now))
            self._row = end

    def drain(self) -> None:
        pass


class Move:
    """Ends after some looks."""

    progress = 1.0

    def __init__(self, query: Query, looks: float = 4) -> None:
        self._query, self._looks = query, looks
        self._start = self._end = time.time()

    def wait(self, seconds: float) -> bool:
        if self._looks:
            self._query.watch(0.005)
            self._looks, self._end = self._looks - 1, time.time()
        return not self._looks

    def measured(self, load: OpenLoop) -> MeasuredMove:
        window = TimeWindow(self._start - load.started, self._end - load.started)
        return MeasuredMove(window, {"groups": 1})


class FailedMove(Move):
    """Never ends well."""

    def wait(self, seconds: float) -> bool:
        raise AnabranchError("no")
