"""Looks at the load of a service every second, decides on its workers, and lets key groups move."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.autoscale.decide import decide, gate, is_skewed, performed
from anabranch.autoscale.decision import Action, Decision
from anabranch.autoscale.memory import NOTHING, ScalerMemory
from anabranch.autoscale.settings import ACT, OFF, AutoscaleSettings
from anabranch.autoscale.signals import Outlook, Signals
from anabranch.coordinator import steady_clock
from anabranch.coordinator.journal_notes import JournalNotes
from anabranch.coordinator.load_book import LoadBook
from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.move_request import MoveWish
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.planning import TargetLayout
from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.model.ids import HostId

_log = logging.getLogger("anabranch.autoscale")

LOOK_SECONDS = 1.0
STOP_SECONDS_MAX = 10.0
DECISIONS_KEPT = 500
SAME_SECONDS = 300.0
"""A decision that stays the same is written down so often."""
CAUSE = "autoscaler"


@dataclass(frozen=True, slots=True)
class Stated:
    """A decision, and when it was made."""

    at: float
    decision: Decision
    mode: str
    until: float
    """When it was made last, again and again the same."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "time": round(self.at, 3),
            "until": round(self.until, 3),
            "mode": self.mode,
            **self.decision.to_json(),
        }


@dataclass(frozen=True, slots=True)
class _Running:
    """A decision that is being carried out."""

    move: MoveHandle
    decision: Decision
    forecast_seconds: float


class Autoscaler:
    """Has a thread while its mode is not "off"."""

    def __init__(
        self,
        moves: MoveRunner,
        book: LoadBook,
        notes: JournalNotes,
        settings: AutoscaleSettings,
    ) -> None:
        self._moves, self._book, self._notes = moves, book, notes
        self._settings = settings
        self._memory: ScalerMemory = NOTHING
        self._released: frozenset[HostId] = frozenset()
        self._stated: deque[Stated] = deque(maxlen=DECISIONS_KEPT)
        self._noted = 0.0
        self._running: _Running | None = None
        self._is_failing = False
        self._lock = threading.Lock()
        """Guards settings, and what was stated."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._start()

    # -- for users --

    @property
    def settings(self) -> AutoscaleSettings:
        """Those that count now."""
        return self._settings

    def change(self, given: Mapping[str, Any]) -> AutoscaleSettings:
        """Use these other settings from now on."""
        with self._lock:
            self._settings = self._settings.changed(given)
        self._start()
        return self._settings

    def load(self, released: frozenset[HostId]) -> Signals:
        """What it sees now."""
        return self._book.signals(released)

    def describe(self, limit: int) -> dict[str, Any]:
        """Settings, and the last decisions, the newest last."""
        with self._lock:
            shown = [stated.to_json() for stated in list(self._stated)[-limit:]]
            return {"settings": self._settings.to_json(), "decisions": shown}

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS_MAX)

    # -- the thread --

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and self._settings.mode != OFF:
                name = "anabranch-autoscale"
                self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if self._settings.mode == OFF:
                self._memory = NOTHING
                continue
            try:
                self._look()
                self._is_failing = False
            except Exception:  # whatever it is, queries are not concerned
                level = logging.DEBUG if self._is_failing else logging.WARNING
                _log.log(level, "The load was not looked at; tried again soon", exc_info=True)
                self._is_failing = True

    def _look(self) -> None:
        self._hear_of_move()
        settings = self._settings
        signals = self._book.signals(self._released)
        if is_skewed(settings, signals, self._memory):
            signals = self._book.with_groups(signals)
        decision, self._memory = decide(settings, signals, self._memory)
        forecast_seconds = 0.0
        if decision.is_action:
            outlook = self._outlook(decision)
            forecast_seconds = outlook.seconds
            decision = gate(settings, decision, outlook, self._memory)
        self._state(signals.now, decision, settings.mode)
        if decision.is_action and settings.mode == ACT:
            self._carry_out(signals, decision, forecast_seconds)

    def _outlook(self, decision: Decision) -> Outlook:
        """What a dry run says."""
        try:
            found = self._moves.forecast(self._plan(self._moves, decision), MoveWish("live", {}))
        except AnabranchError as error:
            return Outlook(lack=str(error))
        return Outlook(found.bytes, found.seconds, found.lack)

    @staticmethod
    def _plan(moves: MoveRunner, decision: Decision) -> TargetLayout:
        if decision.action is Action.REBALANCE:
            return moves.rebalance()
        return moves.rescale(decision.to, "minimal", decision.hosts)

    def _carry_out(self, signals: Signals, decision: Decision, forecast_seconds: float) -> None:
        settings = self._settings

        def plan(moves: MoveRunner) -> TargetLayout:
            if moves.is_moving:
                raise ServiceUnavailable("Another move has begun meanwhile.")
            return self._plan(moves, decision)

        try:
            move = self._moves.ask(plan, MoveWish("live", {}, cause=CAUSE))
        except AnabranchError as error:
            self._failed(decision, str(error))
            return
        self._memory = performed(settings, decision, signals.now, self._memory)
        if decision.hosts is not None:
            hosts = signals.fleet.hosts
            users = {h for h, use in hosts.items() if use.is_drained and h not in self._released}
            self._released = frozenset(hosts).difference(decision.hosts, users)
        self._running = _Running(move, decision, forecast_seconds)

    def _hear_of_move(self) -> None:
        """How the last one has ended."""
        running = self._running
        if running is None or not running.move.is_done:
            return
        self._running = None
        report = running.move.report()
        if report.outcome == "done":
            self._memory = self._memory.carried_out(running.forecast_seconds, report.seconds)
        else:
            self._failed(running.decision, report.outcome)

    def _failed(self, decision: Decision, why: str) -> None:
        now = steady_clock.now()
        self._memory = self._memory.not_carried_out(now)
        told = Stated(now, decision, self._settings.mode, now).to_json()
        wait = self._memory.retry_at - now
        text = f"{decision.reason} It was not carried out ({why}) Tried again in {wait:.0f} s."
        self._notes.autoscale({**told, "reason": text, "failed": why})
        _log.warning("A step of the autoscaler was not carried out: %s", why)

    def _state(self, now: float, decision: Decision, mode: str) -> None:
        """Remember; write down what differs from the one before, and an action that begins."""
        with self._lock:
            last = self._stated[-1] if self._stated else None
            is_same = (
                last is not None
                and (last.mode, last.decision.gist) == (mode, decision.gist)
                and not (decision.is_action and mode == ACT)
            )
            since = last.at if last is not None and is_same else now
            if is_same:
                self._stated.pop()
            stated = Stated(since, decision, mode, now)
            self._stated.append(stated)
        if not is_same or now - self._noted >= SAME_SECONDS:
            self._noted = now
            self._notes.autoscale(stated.to_json())
