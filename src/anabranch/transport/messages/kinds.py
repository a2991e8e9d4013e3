"""What all messages have in common.

A call is named by the type of its request (`names.py`), and its type says what it is answered with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

R_co = TypeVar("R_co", covariant=True)
H_co = TypeVar("H_co", covariant=True)


class Call(Generic[R_co]):
    """A request with one reply, of this type."""

    __slots__ = ()


class Stream(Generic[H_co]):
    """A request whose reply is many parcels, with heads of this type."""

    __slots__ = ()


def reply_type(request: type[Call[R_co]]) -> type[R_co]:
    """What a call is answered with."""
    (base,) = request.__orig_bases__  # type: ignore[attr-defined]
    (reply,) = get_args(base)
    return reply  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Nothing:
    """The reply to a call that was carried out, and has nothing to say."""


@dataclass(frozen=True, slots=True)
class AliveHead:
    """A sign of life in a stream that has nothing to say just now."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The reply to a call that was made as a stream, since it may take long."""

    reply: bytes


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """An error on its way to the caller."""

    condition: str
    """Its name in the tree of errors."""
    message: str


@dataclass(frozen=True, slots=True)
class StreamTicket:
    """How a stream is asked for."""

    name: str
    request: bytes


@dataclass(frozen=True, slots=True)
class ParcelLabel:
    """What travels beside the bytes of a parcel."""

    name: str | None
    """Of the type of its head; None: this is the end of the stream."""
    sizes: dict[str, int]
    """Bytes of each of its tables."""
    error: ErrorMessage | None
    """Why the stream ends early."""
    head: bytes
