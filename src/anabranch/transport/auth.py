"""What callers have: a token in the headers, never on a command line, and whom they trust."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

import pyarrow.flight as flight

TOKEN_HEADER = "authorization"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a process needs to call others; can be pickled, and does not show its token."""

    token: str = field(repr=False)
    certificates: bytes | None = None
    """PEM of the certificate authority that it trusts; None: calls are not encrypted."""

    def for_lanes(self) -> Credentials:
        """What lanes get of these: they travel through Spark, and need only a few calls."""
        return Credentials(lane_token(self.token), self.certificates)


def new_token() -> str:
    """A random token for one run of a service."""
    return secrets.token_urlsafe(32)


def lane_token(service_token: str) -> str:
    """The token of a service's lanes. It follows from the service's own; the reverse is secret."""
    return hmac.digest(service_token.encode(), b"lanes", hashlib.sha256).hex()


def bearer(token: str) -> str:
    """A token as the value of its header."""
    return f"Bearer {token}"


def call_options(
    credentials: Credentials, timeout_seconds: float | None = None
) -> flight.FlightCallOptions:
    """Options for a client call."""
    headers = [(TOKEN_HEADER.encode(), bearer(credentials.token).encode())]
    return flight.FlightCallOptions(timeout=timeout_seconds, headers=headers)
