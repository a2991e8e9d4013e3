"""Which Python runs Spark's tasks: looked at once for each Spark, beside what starts meanwhile."""

from __future__ import annotations

import logging
import threading
import weakref

from pyspark import SparkContext

from anabranch.errors import InvalidArgument
from anabranch.processes.other_python import (
    PythonReport,
    cure,
    flaw_of,
    is_this,
    this_python,
)

_log = logging.getLogger("anabranch.service")


class PythonCheck:
    """Of one Spark context. Nothing waits for it: it tells what it has found by the time."""

    def __init__(self, context: SparkContext) -> None:
        self.problem: str | None = None
        """Why tasks cannot run, as far as it is known."""
        self._context = context
        self._is_local = str(context.master).startswith("local")
        self._tasks = str(context.pythonExec)
        self.thread: threading.Thread | None = None
        if self._is_local and is_this(self._tasks):
            return
        self.thread = threading.Thread(target=self._look, name="anabranch-python", daemon=True)
        self.thread.start()

    def require(self) -> None:
        """Raise if tasks are known to fail."""
        if self.problem is not None:
            raise InvalidArgument(self.problem)

    def _look(self) -> None:
        try:
            flaw = flaw_of(self._tasks) if self._is_local else _flaw_of_tasks(self._context)
        except Exception as error:  # Spark ends, or has no room for a task: not our business
            _log.debug("Spark's Python was not looked at: %s", error)
            return
        if flaw is not None:
            self.problem = f"Spark's tasks run {self._tasks}, which {flaw}. {cure()}"
            _log.error("%s", self.problem)


def _flaw_of_tasks(context: SparkContext) -> str | None:
    def report(_: int) -> PythonReport:
        return this_python()

    found = context.parallelize([0], 1).map(report).collect()
    return ", ".join(found[0].flaws(this_python())) or None


_checks: weakref.WeakKeyDictionary[SparkContext, PythonCheck] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def check_python(context: SparkContext) -> PythonCheck:
    """The check of this Spark; begun if it is the first."""
    with _lock:
        if context not in _checks:
            _checks[context] = PythonCheck(context)
        return _checks[context]
