"""What a server sends while it has nothing to say, so that both ends notice a cut.

The caller sees that somebody is there. The server's kernel sees that what it has sent is not
acknowledged, and ends the connection: only so does a call end whose caller is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.transport.messages.kinds import AliveHead, AnswerHead
from anabranch.transport.wire import SIGN_OF_LIFE, SIGN_SECONDS

Item = tuple[object, Mapping[str, pa.Table]]
"""Head and tables of a parcel of a streamed reply."""


def patiently(call: Callable[[], bytes]) -> Iterator[Item]:
    """Signs of life for as long as a call takes, then its reply."""
    reply: futures.Future[bytes] = futures.Future()

    def work() -> None:
        try:
            reply.set_result(call())
        except BaseException as error:
            reply.set_exception(error)

    threading.Thread(target=work, name="anabranch-patient-call", daemon=True).start()
    while not futures.wait([reply], SIGN_SECONDS).done:
        yield AliveHead(), {}
    yield AnswerHead(reply.result()), {}  # no limit: it is there


BRIEF_SECONDS = 1.0
"""So long a handler may wait for others before it answers a unary call."""

_unary = threading.local()


@contextmanager
def in_unary_call() -> Iterator[None]:
    """A handler answers a unary call: its caller hears nothing meanwhile."""
    _unary.is_here = True
    try:
        yield
    finally:
        _unary.is_here = False


def patience_seconds() -> float | None:
    """How long the running call may wait for others; None: it shows signs of life."""
    return BRIEF_SECONDS if getattr(_unary, "is_here", False) else None


class Signs:
    """The signs of life of one exchange; nobody else writes until they end."""

    def __init__(self, writer: Any, ended: Callable[[Signs], None]) -> None:
        self._writer = writer
        self._ended = ended
        self._lock = threading.Lock()

    def show(self) -> None:
        """Write one, unless they have ended."""
        with self._lock:
            if self._writer is None:
                return
            try:
                self._writer.write_metadata(pa.py_buffer(SIGN_OF_LIFE))
            except (pa.ArrowException, flight.FlightError, OSError):
                self._writer = None  # whoever reads hears it too

    def end(self) -> None:
        """The answer comes now, or the call is over and Flight's memory of it goes."""
        with self._lock:
            self._writer = None
        self._ended(self)


class SignsOfLife:
    """One thread for all exchanges of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Signs] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, writer: Any) -> Signs:
        """An exchange has begun."""
        signs = Signs(writer, self._forget)
        with self._lock:
            self._open.add(signs)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="anabranch-signs-of-life", daemon=True
                )
                self._thread.start()
        return signs

    def close(self) -> None:
        """No exchange is left."""
        self._closed.set()

    def _forget(self, signs: Signs) -> None:
        with self._lock:
            self._open.discard(signs)

    def _run(self) -> None:
        while not self._closed.wait(SIGN_SECONDS):
            with self._lock:
                now = list(self._open)
            for signs in now:
                signs.show()
