"""What every request has to pass before anything looks at it: host, origin, rate, token, role."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser

from anabranch.http.door import Door
from anabranch.http.problems import Problem
from anabranch.http.tokens import ApiRole, Session, Tokens

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "anabranch"
CSRF_HEADER = "x-csrf-token"
PUBLIC = ("/healthz", "/readyz", "/login")
READING = ("GET", "HEAD")

REQUESTS_A_SECOND = 100.0
BURST = 200.0
PATIENCE_SECONDS = 1.0
"""How long a request beyond that waits before it is refused: a client in a loop slows down."""

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RateLimit:
    """A bucket of requests for all callers together: what they cost the driver is bounded."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._left, self._at = BURST, now()

    def take(self) -> float:
        """Seconds that this request has to wait."""
        now = self._now()
        self._left = min(BURST, self._left + (now - self._at) * REQUESTS_A_SECOND)
        self._at = now
        self._left -= 1
        return max(0.0, -self._left / REQUESTS_A_SECOND)

    def give_back(self) -> None:
        """It was refused instead."""
        self._left += 1


class Guard:
    """Middleware around the whole application."""

    def __init__(
        self, app: AsgiApp, tokens: Tokens, hosts: Collection[str], scheme: str, door: Door
    ) -> None:
        """`hosts`: values of the header Host that mean this server."""
        self._door = door
        self._app, self._tokens = app, tokens
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(f"{scheme}://{host}" for host in self._hosts)
        self._limit = RateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        address = None if client is None else (client[0], client[1])
        self._door.begun(address)
        try:
            await self._guarded(scope, receive, send)
        finally:
            self._door.ended(address)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._pace()
            scope["role"], scope["session"] = self._admit(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    async def _pace(self) -> None:
        wait = self._limit.take()
        if wait > PATIENCE_SECONDS:
            self._limit.give_back()
            await asyncio.sleep(PATIENCE_SECONDS)
            raise Problem(429, "Too many requests. Wait a second.", retry_after="1")
        if wait:
            await asyncio.sleep(wait)

    def _admit(self, scope: Scope) -> tuple[ApiRole | None, Session | None]:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._hosts:
            raise Problem(421, f"This server is {' or '.join(sorted(self._hosts))}: ask for that.")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise Problem(403, "Pages of other sites may not use this API.")
        if scope["path"] in PUBLIC:
            return None, None
        role, session = self._caller(headers)
        if scope["method"] not in READING:
            self._check_change(headers, role, session)
        return role, session

    def _caller(self, headers: Headers) -> tuple[ApiRole, Session | None]:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            role = self._tokens.role_of(token.strip())
            if role is not None:
                return role, None
        elif not kind:
            cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
            session = self._tokens.session_of(cookie)
            if session is not None:
                return session.role, session
        raise Problem(
            401,
            "Give the service's token as `Authorization: Bearer TOKEN`, or open service.url.",
            www_authenticate="Bearer",
        )

    @staticmethod
    def _check_change(headers: Headers, role: ApiRole, session: Session | None) -> None:
        if role < ApiRole.OPERATE:
            raise Problem(403, "This token may only read. Use the operator's.")
        if session is not None and headers.get(CSRF_HEADER) != session.csrf:
            raise Problem(403, f"A change by cookie needs the session's {CSRF_HEADER}.")
