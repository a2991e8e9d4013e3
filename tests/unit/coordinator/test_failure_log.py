"""One line for each batch that fails, in the driver's log; once more where the program ends."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from anabranch.coordinator.failure_log import (
    LINE_CHARACTERS_MAX,
    RUNS_MAX,
    FailureLog,
    failure_line,
)
from anabranch.model.ids import Epoch
from anabranch.transport.messages.lanes import LaneFailed

PROGRAM = """
import sys
from pyspark.errors import StreamingQueryException
from anabranch.coordinator.failure_log import FailureLog
from anabranch.transport.messages.lanes import LaneFailed

FailureLog().note(LaneFailed("totals", "run", 3, "It broke. Mend it."))
raise {error}
"""


def failed(run: str = "run", epoch: int = 3, message: str = "It broke. Mend it.") -> LaneFailed:
    return LaneFailed("totals", run, Epoch(epoch), message)


def test_one_line_for_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog()
    for _ in range(2):
        log.note(failed())
        log.note(failed(message="Another lane tells it in other words."))
    assert caplog.messages == ["Batch 3 of operator 'totals' failed: It broke. Mend it."]
    assert caplog.records[0].levelno == logging.ERROR
    log.note(failed(run="started again"))
    log.note(failed(epoch=4))
    assert len(caplog.messages) == 3
    for number in range(RUNS_MAX):
        log.note(failed(run=str(number)))
    assert len(log._told) == RUNS_MAX


def test_the_line_has_no_frames() -> None:
    message = (
        "Mine.handleInputRows failed for key (1,): ValueError: two\nlines\n"
        "Traceback (most recent call last):\n  File x, line 1\nFix the processor."
    )
    line = failure_line(failed(message=message))
    assert line == (
        "Batch 3 of operator 'totals' failed: Mine.handleInputRows failed for key (1,): "
        "ValueError: two lines. Fix the processor."
    )
    assert len(failure_line(failed(message="x" * 10_000))) < LINE_CHARACTERS_MAX + 100


@pytest.mark.parametrize(
    ("error", "times"),
    [("StreamingQueryException('the long text of Spark')", 2), ("KeyError('another')", 1)],
)
def test_the_last_line_of_a_program_that_fails(error: str, times: int) -> None:
    command = [sys.executable, "-c", PROGRAM.format(error=error)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    line = "Batch 3 of operator 'totals' failed: It broke. Mend it."
    assert lines.count(line) == times
    assert lines[0] == line
    assert (lines[-1] == line) == (times == 2)
