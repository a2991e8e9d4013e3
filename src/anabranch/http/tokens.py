"""Who may do what: two tokens for programs; links that work once, and sessions, for browsers."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

LOGIN_SECONDS = 600.0
SESSION_SECONDS = 12 * 3600.0
LOGINS_MAX = 100
"""Links that nobody has used."""


class ApiRole(IntEnum):
    """What a caller may do; a higher one may do what a lower one may."""

    READ = 1
    OPERATE = 2


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has used a link."""

    role: ApiRole
    csrf: str
    """What its pages must say when they change something: other sites cannot know it."""
    ends: float


@dataclass
class Tokens:
    """The secrets of one service. None of them is of use anywhere else."""

    operator: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    reader: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    _logins: dict[str, float] = field(default_factory=dict, repr=False)
    _sessions: dict[str, Session] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def role_of(self, token: str) -> ApiRole | None:
        """Of a program's token; None: it is none of ours. Takes as long for any token."""
        given = token.encode("utf-8", "replace")
        is_operator = hmac.compare_digest(given, self.operator.encode())
        is_reader = hmac.compare_digest(given, self.reader.encode())
        return ApiRole.OPERATE if is_operator else ApiRole.READ if is_reader else None

    def new_login(self) -> str:
        """A code that opens one session."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._logins) >= LOGINS_MAX:
                del self._logins[next(iter(self._logins))]
            self._logins[code] = self.now() + LOGIN_SECONDS
        return code

    def log_in(self, code: str) -> tuple[str, Session] | None:
        """A session and the content of its cookie; None: the code is wrong, used or old."""
        with self._lock:
            now = self.now()
            ends = self._logins.pop(code, None)
            if ends is None or ends < now:
                return None
            self._sessions = {k: s for k, s in self._sessions.items() if s.ends >= now}
            cookie = secrets.token_urlsafe(32)
            session = Session(ApiRole.OPERATE, secrets.token_urlsafe(24), now + SESSION_SECONDS)
            self._sessions[cookie] = session
            return cookie, session

    def session_of(self, cookie: str) -> Session | None:
        """The session of a cookie, if it is not over."""
        with self._lock:
            session = self._sessions.get(cookie)
        return session if session is not None and session.ends >= self.now() else None
