"""Messages as bytes: one encoder, one decoder, both driven by the fields of the message's type.

A message is a dataclass. Its fields travel as one JSON object. The last one may be of type `bytes`:
it follows the others as it is, after a line end.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from anabranch.errors import AnabranchError

T = TypeVar("T")

_Decoder = Callable[[Any], Any]

_DIFFERENT = (
    "The versions of the service and of the task differ. Install the same version of anabranch for "
    "both, then start the service and its queries again."
)


class _Unfit(Exception):
    """A value is not of the type of its field."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the codec knows of a type of messages; found out once."""

    names: tuple[str, ...]
    """Fields that travel as JSON."""
    content: str | None
    """The field that follows them."""
    decode: Callable[..., Any]


def encode(message: object) -> bytes:
    """A message as bytes."""
    head = _JSON.encode(message).encode()
    content = _shape(type(message)).content
    return head if content is None else b"%b\n%b" % (head, getattr(message, content))


def decode(kind: type[T], data: bytes | pa.Buffer) -> T:
    """The message of this type in some bytes."""
    shape = _shape(kind)
    head, end, content = bytes(data), b"", b""
    if shape.content is not None:
        head, end, content = head.partition(b"\n")
        if not end:
            raise _differs(kind, f"field '{shape.content}' is missing")
    try:
        raw = json.loads(head)
    except ValueError:
        raise _differs(kind, "it is not JSON") from None
    message: T = shape.decode(raw, () if shape.content is None else (content,))
    return message


def different_versions(what: str) -> AnabranchError:
    """The error for whatever the other process does not know."""
    return AnabranchError(f"{what}. {_DIFFERENT}")


def _differs(kind: type, why: str) -> AnabranchError:
    return different_versions(f"Message '{kind.__name__}' cannot be read: {why}")


# --- encoder ------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """What JSON does not know."""
    if isinstance(value, Enum):
        return value.value
    if not _has_shape(type(value)):
        raise TypeError(f"{value!r} cannot be a part of a message")
    return {name: getattr(value, name) for name in _shape(type(value)).names}


_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_plain)


# --- decoder ------------------------------------------------------------------------------------


_shapes: dict[type, _Shape] = {}


def _shape(kind: type) -> _Shape:
    shape = _shapes.get(kind)
    if shape is None:
        shape = _shapes[kind] = _new_shape(kind)
    return shape


def _new_shape(kind: Any) -> _Shape:
    hints = get_type_hints(kind)
    every = [field.name for field in fields(kind)]
    contents = [name for name in every if hints[name] is bytes]
    if contents and contents != every[-1:]:
        raise TypeError(f"{kind.__name__}: only the last field can be bytes")
    names = tuple(name for name in every if name not in contents)
    parts = [(name, _decoder(hints[name])) for name in names]
    expected = frozenset(names)

    def read(raw: Any, content: tuple[bytes, ...] = ()) -> Any:
        if type(raw) is not dict:
            raise _differs(kind, "it is not an object")
        if raw.keys() != expected:
            raise _differs(kind, _other_fields(raw.keys(), expected))
        try:
            return kind(*[part(raw[name]) for name, part in parts], *content)
        except _Unfit:
            raise _differs(kind, _wrong_field(raw, parts)) from None

    return _Shape(names, contents[0] if contents else None, read)


def _other_fields(given: Any, expected: frozenset[str]) -> str:
    missing, unknown = sorted(expected - given), sorted(given - expected)
    return f"field '{missing[0]}' is missing" if missing else f"field '{unknown[0]}' is not known"


def _wrong_field(raw: dict[str, Any], parts: list[tuple[str, _Decoder]]) -> str:
    for name, part in parts:
        try:
            part(raw[name])
        except _Unfit:
            return f"field '{name}' cannot be {raw[name]!r:.80}"
    raise AssertionError(raw)


def _decoder(kind: Any) -> _Decoder:
    """The decoder of a type: scalar, enum, message, optional, tuple or dict of such."""
    while hasattr(kind, "__supertype__"):  # an id
        kind = kind.__supertype__
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (some,) = [each for each in inner if each is not types.NoneType]
        return _optional(_decoder(some))
    if origin is tuple and inner[1:] == (Ellipsis,):
        return _sequence(inner[0])
    if origin is dict:
        return _mapping(inner[0], inner[1])
    if kind in (int, str, bool):
        return _scalar(kind)
    if kind is float:
        return _number
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    return _shape(kind).decode if _has_shape(kind) else _refuse(kind)


def _has_shape(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")


def _refuse(kind: Any) -> _Decoder:
    raise TypeError(f"{kind} cannot be a part of a message")


def _scalar(kind: type) -> _Decoder:
    def read(raw: Any) -> Any:
        if type(raw) is not kind:
            raise _Unfit
        return raw

    return read


def _number(raw: Any) -> float:
    if type(raw) is not float and type(raw) is not int:
        raise _Unfit
    return raw


def _enum(kind: type[Enum]) -> _Decoder:
    members = {member.value: member for member in kind}

    def read(raw: Any) -> Any:
        if type(raw) is not str or raw not in members:
            raise _Unfit
        return members[raw]

    return read


def _optional(part: _Decoder) -> _Decoder:
    return lambda raw: None if raw is None else part(raw)


def _sequence(kind: Any) -> _Decoder:
    part, at_once = _decoder(kind), _checked_at_once(kind)

    def read(raw: Any) -> tuple[Any, ...]:
        if type(raw) is not list:
            raise _Unfit
        if at_once is None:
            return tuple([part(each) for each in raw])
        if not at_once.issuperset(map(type, raw)):
            raise _Unfit
        return tuple(raw)

    return read


def _mapping(key_kind: Any, kind: Any) -> _Decoder:
    key, part, at_once = _key(key_kind), _decoder(kind), _checked_at_once(kind)

    def read(raw: Any) -> dict[Any, Any]:
        if type(raw) is not dict:
            raise _Unfit
        if key is None and at_once is not None:
            if not at_once.issuperset(map(type, raw.values())):
                raise _Unfit
            return raw
        named = raw.items() if key is None else zip(map(key, raw), raw.values(), strict=True)
        return {name: part(value) for name, value in named}

    return read


def _checked_at_once(kind: Any) -> frozenset[type] | None:
    """Most lists are of numbers or of text: a loop over them in Python would be felt."""
    plain = getattr(kind, "__supertype__", kind)
    return frozenset({plain}) if plain in (int, str) else None


def _key(kind: Any) -> _Decoder | None:
    """Keys are text in JSON; None: here too."""
    plain = getattr(kind, "__supertype__", kind)
    if plain is str:
        return None

    def number(name: str) -> int:
        try:
            return int(name)
        except ValueError:
            raise _Unfit from None

    return number if plain is int else _refuse(kind)
