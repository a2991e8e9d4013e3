"""What servers ask of callers: a token that they know, and a call that its role allows.

This is the one place that decides. Every call comes by here before its content is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pyarrow.flight as flight

from anabranch.errors import AccessRefused
from anabranch.transport.auth import TOKEN_HEADER, bearer, lane_token
from anabranch.transport.messages import control, deaths, hosts, lanes


class Role(Enum):
    """Whose token it is."""

    SERVICE = "the service"
    """The coordinator and its workers: they may call everything."""
    LANE = "lanes"
    AGENT = "agents of hosts"
    STRANGER = "whoever has none yet"


ALLOWED: Mapping[Role, frozenset[type]] = {
    Role.LANE: frozenset(
        {
            lanes.Begin,
            lanes.Finish,
            lanes.LaneFailed,
            lanes.TransactionHeader,
            control.Ping,
            deaths.WatchDeaths,
        }
    ),
    Role.AGENT: frozenset(
        {hosts.Join, hosts.Prove, hosts.Beat, hosts.Report, hosts.Leave, hosts.Orders}
    ),
    Role.STRANGER: frozenset({hosts.Introduce}),
}
"""Calls by the types of their requests. What is not listed needs the service's own token."""

_MIDDLEWARE = "caller"


class Access:
    """The tokens that a server knows. They may change while it listens."""

    def __init__(self, service_token: str) -> None:
        self._roles = {
            digest_of(bearer(service_token)): Role.SERVICE,
            digest_of(bearer(lane_token(service_token))): Role.LANE,
        }

    def admit(self, token: str, role: Role) -> None:
        """Know one more token."""
        self._roles[digest_of(bearer(token))] = role

    def revoke(self, token: str) -> None:
        """Know a token no more. Its calls end: streams within their next parcel."""
        self._roles.pop(digest_of(bearer(token)), None)

    def role_of(self, digest: bytes) -> Role | None:
        """Whose token it is that has this digest."""
        return self._roles.get(digest)

    def middleware(self) -> dict[str, flight.ServerMiddlewareFactory]:
        """For a server."""
        return {_MIDDLEWARE: _CallerCheck(self)}


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Who makes a call."""

    def __init__(self, access: Access, digest: bytes) -> None:
        super().__init__()
        self._access = access
        self._digest = digest

    def require(self, call: type) -> None:
        """Refuse a call that the caller's token does not allow, or does not allow any more."""
        role = self._access.role_of(self._digest)
        if role is None:
            raise AccessRefused("The token of this call was revoked. Ask for a new one.")
        if role is not Role.SERVICE and call not in ALLOWED[role]:
            raise AccessRefused(
                f"'{call.__name__}' needs the service's own token; this is that of {role.value}."
            )


def caller_of(context: Any) -> Caller:
    """Who makes the call that a server handles."""
    caller = context.get_middleware(_MIDDLEWARE)
    assert isinstance(caller, Caller)
    return caller


class _CallerCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses every call without a token before any of its content is looked at."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> Caller:
        """Called for each call, first."""
        given = next(iter(headers.get(TOKEN_HEADER, [])), "")
        digest = digest_of(str(given))
        if self._access.role_of(digest) is None:
            raise flight.FlightUnauthenticatedError(
                "This is an Anabranch state service; calls need its token."
            )
        return Caller(self._access, digest)


def digest_of(header: str) -> bytes:
    """Tokens are found by digest: how long that takes tells nothing of them."""
    return hashlib.sha256(header.encode()).digest()
