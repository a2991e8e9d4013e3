"""Errors between processes, signs of life and the end of rows; the same on both ends of calls."""

from __future__ import annotations

import pyarrow.flight as flight

from anabranch.errors import (
    AccessRefused,
    AnabranchError,
    CallTimedOut,
    NotReachable,
    error_from_condition,
)
from anabranch.transport.codec import decode, encode
from anabranch.transport.messages.kinds import ErrorMessage

END_MARK = b"end"
"""Metadata after the last row: a stream that ends without it was cut off."""


STREAM_MARK = b"stream "
"""What an exchange begins with that only asks: its reply comes in parcels."""

SIGN_OF_LIFE = b"alive"
"""Metadata of an exchange while the worker has nothing else to say."""

SIGN_SECONDS = 2.0
"""How often a call or stream that waits shows a sign of life."""


def flight_error(error: AnabranchError) -> flight.FlightError:
    """An error on its way to the caller."""
    return flight.FlightServerError(str(error), extra_info=encode(error_message(error)))


def error_message(error: AnabranchError) -> ErrorMessage:
    """An error as a message."""
    return ErrorMessage(error.condition, error._message)


def error_from_message(message: ErrorMessage) -> AnabranchError:
    """The reverse."""
    return error_from_condition(message.condition, message.message)


def from_flight(error: Exception, peer: str, address: str) -> AnabranchError:
    """The error that the peer raised, or NotReachable where the connection itself failed."""
    detail = getattr(error, "extra_info", b"")
    if detail:
        try:
            return error_from_message(decode(ErrorMessage, detail))
        except AnabranchError:
            pass  # not one of ours
    reason = str(error).split(". gRPC client debug context", 1)[0]
    if isinstance(error, flight.FlightTimedOutError):
        return CallTimedOut(
            f"{peer} did not answer in time: {reason} Ask again; if it stays so, "
            "service.status() tells what its user code does."
        )
    if isinstance(error, flight.FlightUnauthenticatedError):
        return AccessRefused(
            f"{peer} does not know the token of this process: {reason} Each service has "
            "tokens of its own, and they can be revoked. Use that of the running service."
        )
    unreached = NotReachable(f"{peer} cannot be reached: {reason}")
    unreached.address = address
    return unreached
