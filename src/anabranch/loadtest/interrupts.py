"""Signals while Spark runs: the command ends, without what Py4J says of the call it was in."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NOISE = ("while sending command.", "while shutting down connection")
"""How Py4J ends what it logs, with a traceback, of a call that a signal or the end has cut off."""

LOGGERS = (None, "py4j.clientserver")
"""Where: the root, and one of its own."""


@contextmanager
def clean_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, SIGTERM what it raised before; Py4J is quiet from then on.

    Spark's own handler of Ctrl-C would cancel the batch by a call in the middle of another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.getsignal(signal.SIGTERM)
    loggers = [logging.getLogger(name) for name in LOGGERS]

    def be_quiet() -> None:
        for logger in loggers:
            logger.addFilter(_is_news)

    def interrupt(*_: object) -> None:
        be_quiet()
        raise KeyboardInterrupt

    def terminate(number: int, frame: Any) -> None:
        be_quiet()
        before(number, frame)

    interrupted = signal.signal(signal.SIGINT, interrupt)
    if callable(before):
        signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, before)
        for logger in loggers:
            logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith(NOISE)
