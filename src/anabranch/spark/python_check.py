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


ANSWER_SECONDS_MAX = 10.0
"""How long the first operator waits for the answer: Spark may have no room for the task."""


class PythonCheck:
    """Of one Spark context. If tasks have the interpreter of the driver, nothing is asked."""

    def __init__(self, context: SparkContext) -> None:
        self.problem: str | None = None
        """Why tasks cannot run, once it is known."""
        self._context = context
        self._is_local = str(context.master).startswith("local")
        self._tasks = str(context.pythonExec)
        self._is_answered, self._patience_seconds = threading.Event(), ANSWER_SECONDS_MAX
        if self._is_local and is_this(self._tasks):
            self._is_answered.set()
            return
        threading.Thread(target=self._look, name="anabranch-python", daemon=True).start()

    def require(self) -> None:
        """Raise if tasks will fail. Only the first call waits for the answer, and not for long."""
        if not self._is_answered.wait(self._patience_seconds):
            self._patience_seconds = 0.0
            _log.info("Which Python runs Spark's tasks is not known yet.")
        if self.problem is not None:
            raise InvalidArgument(self.problem)

    def _look(self) -> None:
        try:
            flaw = flaw_of(self._tasks) if self._is_local else _flaw_of_tasks(self._context)
        except Exception as error:  # Spark ends, or has no room for a task: not our business
            _log.debug("Spark's Python was not looked at: %s", error)
            flaw = None
        if flaw is not None:
            self.problem = f"Spark's tasks run {self._tasks}, which {flaw}. {cure()}"
            _log.error("%s", self.problem)
        self._is_answered.set()


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
