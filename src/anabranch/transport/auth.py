"""The service's token: every call must carry it; it travels in headers, never on a command line."""

from __future__ import annotations

import hmac
import secrets
from typing import Any

import pyarrow.flight as flight

_HEADER = "authorization"


def new_token() -> str:
    """A random token for one run of a service."""
    return secrets.token_urlsafe(32)


def call_options(token: str, timeout_seconds: float | None = None) -> flight.FlightCallOptions:
    """Options for a client call."""
    headers = [(_HEADER.encode(), f"Bearer {token}".encode())]
    return flight.FlightCallOptions(timeout=timeout_seconds, headers=headers)


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses every call without the token before any of its content is looked at."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        """Called for each call, first."""
        given = next(iter(headers.get(_HEADER, [])), "")
        if not hmac.compare_digest(str(given).encode(), self._expected):
            raise flight.FlightUnauthenticatedError(
                "This is an Anabranch state service; calls need its token."
            )
