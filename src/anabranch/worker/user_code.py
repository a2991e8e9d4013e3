"""Where user code is: a thread looks now and then, so that calls cost nothing while they return."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import anabranch
from anabranch.processor.contract import CodePlace
from anabranch.transport.messages.control import UserCall, UserCalls

LOOK_SECONDS = 0.5
"""How exactly one knows since when a call of user code is under way."""

KEY_CHARACTERS_MAX = 200
FRAMES_MAX = 30

_OWN = f"{Path(anabranch.__file__).parent}{os.sep}"


@dataclass(slots=True)
class Visit:
    """A thread that may be in user code of an operator, and what was last seen of it."""

    operator: str
    definition: int
    place: Callable[[], CodePlace | None]
    epoch: int | None = None
    attempt: int | None = None
    is_abandoned: Callable[[], bool] = lambda: False
    """Whether nobody waits for it any more."""
    thread: int = field(default_factory=threading.get_ident)
    number: int = 0
    seen: CodePlace | None = None
    since: float = 0.0


class UserCodeWatch:
    """All threads of a worker that may be in user code."""

    def __init__(self) -> None:
        self._visits: dict[int, Visit] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anabranch-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def watched(self, visit: Visit) -> Iterator[None]:
        """Inside, this thread may call user code."""
        visit.thread = threading.get_ident()
        with self._lock:
            self._visits[id(visit)] = visit
        try:
            yield
        finally:
            with self._lock:
                del self._visits[id(visit)]

    def report(self, longer_than_seconds: float) -> UserCalls:
        """Calls that are under way for so long."""
        now = time.monotonic()
        self._look(now)
        with self._lock:
            late = [
                visit
                for visit in self._visits.values()
                if visit.seen is not None and now - visit.since >= longer_than_seconds
            ]
            frames = sys._current_frames() if late else {}
            return UserCalls(tuple(_call(visit, frames.get(visit.thread), now) for visit in late))

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(LOOK_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        with self._lock:
            for visit in self._visits.values():
                place, seen = visit.place(), visit.seen
                is_same = (
                    place is not None
                    and seen is not None
                    and place.mark is seen.mark
                    and place.method == seen.method
                )
                if not is_same:
                    visit.seen, visit.since, visit.number = place, now, next(self._numbers)


def _call(visit: Visit, frame: FrameType | None, now: float) -> UserCall:
    assert visit.seen is not None
    key = None if visit.seen.key is None else visit.seen.key()
    if key is not None and len(key) > KEY_CHARACTERS_MAX:
        key = f"{key[:KEY_CHARACTERS_MAX]}..."
    return UserCall(
        number=visit.number,
        operator=visit.operator,
        definition=visit.definition,
        method=visit.seen.method,
        key=key,
        epoch=visit.epoch,
        attempt=visit.attempt,
        seconds=round(now - visit.since, 3),
        is_abandoned=visit.is_abandoned(),
        stack=_stack(frame),
    )


def _stack(frame: FrameType | None) -> str:
    """The user's frames, and what they call; all, if there are none of the user's."""
    frames = traceback.extract_stack(frame) if frame is not None else []
    own = itertools.dropwhile(lambda each: not each.filename.startswith(_OWN), frames)
    users = list(itertools.dropwhile(lambda each: each.filename.startswith(_OWN), own))
    return "".join(traceback.format_list((users or frames)[-FRAMES_MAX:]))
