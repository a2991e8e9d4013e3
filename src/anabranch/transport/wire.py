"""JSON for control messages and errors; the same on both ends of every call."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError, ServiceUnavailable, error_from_condition

Message = dict[str, Any]

END_MARK = b"end"
"""Metadata after the last row: a stream that ends without it was cut off."""


def encode(message: Message) -> bytes:
    """Message to bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


def decode(data: bytes | pa.Buffer) -> Message:
    """Bytes to message."""
    message = json.loads(bytes(data))
    if not isinstance(message, dict):
        raise ServiceUnavailable("A control message is not a JSON object; versions differ?")
    return message


def flight_error(error: AnabranchError) -> flight.FlightError:
    """An error on its way to the caller."""
    return flight.FlightServerError(str(error), extra_info=encode(error_message(error)))


def error_message(error: AnabranchError) -> Message:
    """An error as a message."""
    return {"condition": error.condition, "message": error._message}


def error_from_message(message: Message) -> AnabranchError:
    """The reverse."""
    return error_from_condition(message["condition"], message["message"])


def from_flight(error: Exception, peer: str) -> AnabranchError:
    """The error that the peer raised, or ServiceUnavailable where the connection itself failed."""
    detail = getattr(error, "extra_info", b"")
    if detail:
        try:
            return error_from_message(decode(detail))
        except (ValueError, KeyError):
            pass
    reason = str(error).split(". gRPC client debug context", 1)[0]
    return ServiceUnavailable(f"{peer} cannot be reached: {reason}")
