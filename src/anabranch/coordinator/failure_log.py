"""One line in the driver's log for each batch that fails, before Spark's own many lines."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections.abc import Callable

from pyspark.errors import StreamingQueryException

from anabranch.transport.messages.lanes import LaneFailed

LINE_CHARACTERS_MAX = 600
RUNS_MAX = 100
"""Of queries, whose last failure is remembered."""

_log = logging.getLogger("anabranch.coordinator")


def _nobody(failed: LaneFailed, line: str) -> None:
    """Only the log hears of failures."""


class FailureLog:
    """What lanes tell of their ends; all lanes of a batch tell the same story."""

    def __init__(self, on_failure: Callable[[LaneFailed, str], None] = _nobody) -> None:
        """`on_failure` hears of each failure, with its line."""
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._told: dict[str, int] = {}
        self._last = ""

    def note(self, failed: LaneFailed) -> None:
        """Log the first failure of a batch in this run of its query."""
        with self._lock:
            if self._told.get(failed.run_id) == failed.epoch:
                return
            self._told[failed.run_id] = failed.epoch
            if len(self._told) > RUNS_MAX:
                del self._told[next(iter(self._told))]
            if not self._last:
                atexit.register(self._repeat)
            self._last = line = failure_line(failed)
        _log.error("%s", line)
        self._on_failure(failed, line)

    def _repeat(self) -> None:
        """The program ends with the query's error: below its traceback, say once more why."""
        if isinstance(getattr(sys, "last_value", None), StreamingQueryException):
            _log.error("%s", self._last)


def failure_line(failed: LaneFailed) -> str:
    """In a line: which batch, and what to do; the user's traceback is in the query's error."""
    what, _, trace = failed.message.partition("\nTraceback ")
    what, advice = " ".join(what.split()), trace.rpartition("\n")[2]
    if len(what) > LINE_CHARACTERS_MAX:
        what = f"{what[:LINE_CHARACTERS_MAX]}..."
    told = f"Batch {failed.epoch} of operator '{failed.operator}' failed: {what}"
    return f"{told}. {advice}" if advice else told
