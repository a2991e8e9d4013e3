"""Errors between processes, and the end of rows; the same on both ends of every call."""

from __future__ import annotations

import pyarrow.flight as flight

from anabranch.errors import AnabranchError, ServiceUnavailable, error_from_condition
from anabranch.transport.codec import decode, encode
from anabranch.transport.messages.kinds import ErrorMessage

END_MARK = b"end"
"""Metadata after the last row: a stream that ends without it was cut off."""


def flight_error(error: AnabranchError) -> flight.FlightError:
    """An error on its way to the caller."""
    return flight.FlightServerError(str(error), extra_info=encode(error_message(error)))


def error_message(error: AnabranchError) -> ErrorMessage:
    """An error as a message."""
    return ErrorMessage(error.condition, error._message)


def error_from_message(message: ErrorMessage) -> AnabranchError:
    """The reverse."""
    return error_from_condition(message.condition, message.message)


def from_flight(error: Exception, peer: str) -> AnabranchError:
    """The error that the peer raised, or ServiceUnavailable where the connection itself failed."""
    detail = getattr(error, "extra_info", b"")
    if detail:
        try:
            return error_from_message(decode(ErrorMessage, detail))
        except AnabranchError:
            pass  # not one of ours
    reason = str(error).split(". gRPC client debug context", 1)[0]
    return ServiceUnavailable(f"{peer} cannot be reached: {reason}")
