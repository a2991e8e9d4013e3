"""What is said of calls of user code that do not come back, how often, and when they are ended."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from anabranch.coordinator import steady_clock
from anabranch.coordinator.journal_notes import JournalNotes
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.coordinator.user_code_monitor import (
    GRACE_SECONDS,
    STUCK_SECONDS,
    UserCodeMonitor,
    ping_seconds,
)
from anabranch.errors import ProcessorError
from anabranch.model.ids import WorkerId
from anabranch.transport.messages.control import UserCall

W1 = WorkerId("w1")
CALL = UserCall(
    number=5,
    operator="totals",
    definition=2,
    method="Slow.handleInputRows",
    key="('a',)",
    epoch=3,
    attempt=41,
    seconds=2.0,
    is_abandoned=False,
    stack='  File "user.py", line 1, in sleep\n',
)


class Driver:
    """Hears of one call every few seconds, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout: float | None = None) -> None:
        self.now = 1000.0
        self.replaced: list[tuple[str, int, str]] = []
        self.is_running: bool | None = True
        unused: Any = None
        self.operator = OperatorRecord("totals", unused, unused, [], 2)
        monkeypatch.setattr(steady_clock, "now", lambda: self.now)
        self.noted: list[tuple[str, dict[str, Any]]] = []
        self.monitor = UserCodeMonitor(
            {"totals": self.operator},
            lambda name: self.is_running,
            lambda *what: self.replaced.append(what),
            timeout,
            JournalNotes(lambda kind, **fields: self.noted.append((kind.value, fields))),
        )

    def hear(self, seconds: float, **changed: Any) -> None:
        self.now += 5
        self.monitor.heard(W1, 0, (replace(CALL, seconds=seconds, **changed),))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Driver:
    caplog.set_level(logging.INFO)
    return Driver(monkeypatch)


def test_it_is_told_at_growing_intervals_and_when_it_comes_back(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    for seconds in range(1, 20 * round(STUCK_SECONDS), 5):
        driver.hear(float(seconds))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 5, "after 10, 20, 40, 80 and 160 s"
    for part in ("w1", "'totals'", "('a',)", "batch 3", "handleInputRows", "user.py", "recycle"):
        assert part in said[0]
    assert " 11 s" in said[0]
    driver.monitor.heard(W1, 0, ())
    assert "came back" in caplog.messages[-1]
    assert driver.replaced == []


def test_the_journal_has_each_call_once_and_that_it_came_back(driver: Driver) -> None:
    for seconds in range(1, 20 * round(STUCK_SECONDS), 5):
        driver.hear(float(seconds))
    ((kind, stuck),) = driver.noted
    assert kind == "user-code-stuck"
    assert (stuck["worker"], stuck["operator"], stuck["epoch"]) == ("w1", "totals", 3)
    assert stuck["seconds"] == 11.0
    assert stuck["details"]["number"] == CALL.number
    assert "('a',)" in stuck["text"]
    assert "user.py" in stuck["details"]["stack"]
    driver.now += 5
    driver.monitor.heard(W1, 0, ())
    kind, back = driver.noted[-1]
    assert (kind, back["details"]["number"], back["seconds"]) == ("user-code-back", 5, 201.0)


def test_short_calls_are_not_told_of(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.hear(STUCK_SECONDS - 1)
    assert driver.monitor.stuck(W1) == []
    driver.monitor.heard(W1, 0, ())
    assert caplog.messages == []
    assert driver.noted == []


def test_status_shows_it_until_it_comes_back_or_its_process_ends(driver: Driver) -> None:
    driver.hear(STUCK_SECONDS + 1)
    driver.now += 3
    (shown,) = driver.monitor.stuck(W1)
    assert (shown["operator"], shown["key"], shown["epoch"]) == ("totals", "('a',)", 3)
    assert shown["seconds"] == STUCK_SECONDS + 4
    assert driver.monitor.stack_of(W1, "totals") == CALL.stack
    assert driver.monitor.stack_of(W1, "other") == ""
    driver.monitor.gone(W1, 7)
    assert driver.monitor.stuck(W1)
    driver.monitor.gone(W1, 0)
    assert driver.monitor.stuck(W1) == []
    driver.hear(STUCK_SECONDS + 1)
    driver.monitor.heard(W1, 1, ())  # the next process
    assert driver.monitor.stuck(W1) == []


@pytest.mark.parametrize("why", ["task gone", "query ended", "defined again"])
def test_what_nobody_waits_for_is_ended_after_a_moment(driver: Driver, why: str) -> None:
    changed: dict[str, Any] = {}
    if why == "task gone":
        changed = {"is_abandoned": True}
    elif why == "query ended":
        driver.is_running = False
    else:
        driver.operator.definition_id = 3
    driver.hear(GRACE_SECONDS + 1, **changed)
    assert driver.replaced == [], "it may come back"
    driver.now += GRACE_SECONDS
    driver.hear(GRACE_SECONDS + 6, **changed)
    ((worker, incarnation, reason),) = driver.replaced
    assert (worker, incarnation) == (W1, 0)
    assert "query has ended" in reason
    assert driver.operator.failed_attempts == {}


@pytest.mark.parametrize("is_running", [True, None])
def test_what_somebody_waits_for_stays(driver: Driver, is_running: bool | None) -> None:
    driver.is_running = is_running
    driver.hear(1.0, is_abandoned=True)
    for seconds in range(6, 300, 5):
        driver.hear(float(seconds))
    assert driver.replaced == []


def test_a_limit_fails_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, timeout=30)
    driver.hear(29.9)
    driver.operator.check_retry(41)
    driver.hear(60.0, epoch=None)  # it is being loaded: that has a deadline of its own
    assert driver.replaced == []
    driver.hear(30.1)
    assert [what[:2] for what in driver.replaced] == [(W1, 0)]
    with pytest.raises(ProcessorError) as failed:
        driver.operator.check_retry(41)
    for part in ("'totals'", "('a',)", "30 s", "user.py", "user_code_timeout_s", "start the query"):
        assert part in str(failed.value)
    driver.operator.check_retry(42)  # another try may have better luck


def test_a_shadow_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, timeout=30)
    driver.hear(31.0, attempt=None)
    assert len(driver.replaced) == 1
    assert driver.operator.failed_attempts == {}


def test_short_limits_are_looked_after_more_often() -> None:
    assert ping_seconds(None) is None
    assert ping_seconds(60) is None
    assert ping_seconds(2) == 0.5
