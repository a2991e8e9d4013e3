"""Calls of user code that do not come back: said in log, journal and status(), or ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.coordinator import steady_clock
from anabranch.coordinator.journal_notes import JournalNotes
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.errors import ProcessorError
from anabranch.model.ids import WorkerId
from anabranch.processes.worker_pool import PING_SECONDS
from anabranch.transport.messages.control import UserCall

_log = logging.getLogger("anabranch.user_code")

STUCK_SECONDS = 10.0
"""A call that takes longer is told of; again after twice the time, and so on."""

GRACE_SECONDS = 5.0
"""How long user code that nobody waits for any more is left alone."""


def ping_seconds(timeout_seconds: float | None) -> float | None:
    """How often workers are to be asked; None: as usual."""
    if timeout_seconds is None or timeout_seconds >= 4 * PING_SECONDS:
        return None
    return max(0.05, timeout_seconds / 4)


@dataclass(slots=True)
class _Known:
    """A call that was heard of."""

    call: UserCall
    heard: float
    next_warning: float = field(default_factory=lambda: STUCK_SECONDS)
    unwanted_since: float | None = None

    @property
    def is_stuck(self) -> bool:
        return self.next_warning > STUCK_SECONDS


@dataclass(slots=True)
class _Process:
    """What was heard of a process last."""

    incarnation: int
    calls: dict[int, _Known] = field(default_factory=dict)


class UserCodeMonitor:
    """Hears of long calls from all workers; decides which are told of, and which are ended."""

    def __init__(
        self,
        operators: Mapping[str, OperatorRecord],
        is_running: Callable[[str], bool | None],
        replace: Callable[[WorkerId, int, str], object],
        timeout_seconds: float | None,
        notes: JournalNotes | None = None,
    ) -> None:
        """`is_running` tells whether the query of an operator is active; None: unknown."""
        self._operators = operators
        self._is_running = is_running
        self._replace = replace
        self._timeout_seconds = timeout_seconds
        self._notes = notes or JournalNotes()
        self._lock = threading.Lock()
        self._processes: dict[WorkerId, _Process] = {}

    def heard(self, worker: WorkerId, incarnation: int, calls: tuple[UserCall, ...]) -> None:
        """Long calls of a process, every few seconds."""
        now = steady_clock.now()
        with self._lock:
            process = self._processes.get(worker)
            if process is None or process.incarnation != incarnation:
                process = _Process(incarnation)
            before, process.calls = process.calls, {}
            for call in calls:
                known = before.pop(call.number, None) or _Known(call, now)
                known.call, known.heard = call, now
                process.calls[call.number] = known
            self._processes[worker] = process
        for known in before.values():
            if known.is_stuck:
                seconds = now - known.heard + known.call.seconds
                line = f"{_name(known.call)} came back after {seconds:.0f} s"
                _log.warning("Worker %s: %s.", worker, line)
                self._notes.user_code_back(worker, known.call, seconds, line)
        for known in list(process.calls.values()):
            if self._is_ended(worker, incarnation, known, now):
                return
            self._warn(worker, known)

    def gone(self, worker: WorkerId, incarnation: int) -> None:
        """A process has ended."""
        with self._lock:
            process = self._processes.get(worker)
            if process is not None and process.incarnation == incarnation:
                del self._processes[worker]

    def stuck(self, worker: str) -> list[dict[str, Any]]:
        """Calls of a worker that do not come back, for status()."""
        now = steady_clock.now()
        return [
            {
                "operator": known.call.operator,
                "method": known.call.method,
                "key": known.call.key,
                "epoch": known.call.epoch,
                "seconds": round(known.call.seconds + now - known.heard, 1),
                "stack": known.call.stack,
            }
            for known in self._known(worker)
            if known.call.seconds + now - known.heard >= STUCK_SECONDS
        ]

    def stack_of(self, worker: str, operator: str) -> str:
        """Where user code of an operator was, when it was heard of last."""
        known = [each.call for each in self._known(worker) if each.call.operator == operator]
        return max(known, key=lambda call: call.seconds).stack if known else ""

    def _known(self, worker: str) -> list[_Known]:
        with self._lock:
            process = self._processes.get(WorkerId(worker))
            return [] if process is None else list(process.calls.values())

    def _is_ended(self, worker: WorkerId, incarnation: int, known: _Known, now: float) -> bool:
        """Whether the process was killed because of this call."""
        call, limit = known.call, self._timeout_seconds
        if limit is not None and call.epoch is not None and call.seconds >= limit:
            self._fail(worker, call, limit)
            self._replace(worker, incarnation, f"{_late(call)}: too long for user_code_timeout_s.")
            return True
        if not self._is_unwanted(call):
            known.unwanted_since = None
            return False
        if known.unwanted_since is None:
            known.unwanted_since = now
        if now - known.unwanted_since < GRACE_SECONDS:
            return False
        self._replace(
            worker, incarnation, f"{_late(call)}, and nobody waits for it: its query has ended."
        )
        return True

    def _is_unwanted(self, call: UserCall) -> bool:
        """Whether nobody waits for it: its task is gone, or its query, or it was defined again."""
        operator = self._operators.get(call.operator)
        if call.is_abandoned or operator is None or call.definition < operator.definition_id:
            return True
        if call.epoch is None or call.seconds < GRACE_SECONDS:
            return False
        return self._is_running(call.operator) is False

    def _fail(self, worker: WorkerId, call: UserCall, limit: float) -> None:
        """The task that waits for it does not send its rows again: it fails."""
        operator = self._operators.get(call.operator)
        if operator is not None and call.attempt is not None:
            operator.failed_attempts[call.attempt] = ProcessorError(
                f"{_late(call)} in worker {worker}; user_code_timeout_s is {limit:g}. The batch "
                f"was not applied, and nothing is lost. It was here:\n{call.stack}"
                "Fix the processor, or raise user_code_timeout_s, and start the query again: it "
                "continues from the last commit."
            )

    def _warn(self, worker: WorkerId, known: _Known) -> None:
        call = known.call
        if call.seconds < known.next_warning:
            return
        if not known.is_stuck:
            self._notes.user_code_stuck(worker, call, _late(call))
        while known.next_warning <= call.seconds:
            known.next_warning *= 2
        _log.warning(
            "Worker %s: %s. If it never comes back, stop the query: the worker is then replaced. "
            'service.recycle("%s") replaces it at once. It is here:\n%s',
            *(worker, _late(call), worker, call.stack.rstrip()),
        )


def _name(call: UserCall) -> str:
    key = "" if call.key is None else f", key {call.key}"
    batch = "" if call.epoch is None else f", batch {call.epoch}"
    return f"User code of operator '{call.operator}' ({call.method}{key}{batch})"


def _late(call: UserCall) -> str:
    return f"{_name(call)} has not come back for {call.seconds:.0f} s"
