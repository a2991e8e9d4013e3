"""A signal in the middle of a call to the JVM: the cleanup can go on, and nothing is printed."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.cli.main import Terminated, _terminable
from anabranch.loadtest.interrupts import clean_interrupts


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_call_that_is_cut_off(
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    number: signal.Signals,
    raised: type[BaseException],
) -> None:
    jvm: Any = spark._jvm
    maximum, sleep = jvm.java.lang.Math.max, jvm.java.lang.Thread.sleep
    before = signal.getsignal(signal.SIGINT)
    with _terminable(), clean_interrupts():
        logging.error("This is news while sending commands.")
        timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
        timer.start()
        with pytest.raises(raised) as caught:
            sleep(1500)
        assert caught.type is raised
        assert maximum(3, 4) == 4
        timer.join()
        logging.error("This is news, too.")
    assert signal.getsignal(signal.SIGINT) is before
    assert caplog.messages == ["This is news while sending commands.", "This is news, too."]
    logging.error("KeyboardInterrupt while sending command.")
    assert len(caplog.messages) == 3
