"""Which changes of an operator the state stored before survives, and words for those it does not.

Fields may be added if they can be null: stored values have none. Everything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN_MAX = 120


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a state schema as the query defines it now."""

    name: str
    kind: str
    nullable: bool = True


def changes(stored: Mapping[str, Any], asked: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What must be the same and is not."""
    return [
        f"{prefix}{key}: stored {_shown(stored.get(key))}, now {_shown(asked.get(key))}"
        for key in sorted(stored.keys() | asked.keys())
        if stored.get(key) != asked.get(key)
    ]


def lost_fields(what: str, stored: Mapping[str, str], fields: Iterable[Field]) -> list[str]:
    """Stored fields (name to type) that are gone or have another type."""
    now = {field.name: field.kind for field in fields}
    found = []
    for name, kind in stored.items():
        if name not in now:
            found.append(f"{what}: field {name!r} ({_cut(kind)}) was removed")
        elif now[name] != kind:
            found.append(f"{what}: field {name!r} was {_cut(kind)}, now it is {_cut(now[name])}")
    return found


def needed_fields(what: str, stored: Mapping[str, str], fields: Iterable[Field]) -> list[str]:
    """Added fields that values stored before cannot do without."""
    return [
        f"{what}: the added field {field.name!r} must be nullable, since values stored before have "
        "none"
        for field in fields
        if field.name not in stored and not field.nullable
    ]


def struct_fields(text: str) -> dict[str, str]:
    """Names and types of a struct in Spark's short notation, `struct<a:int,b:map<int,string>>`."""
    inside = text.removeprefix("struct<").removesuffix(">")
    pairs = (part.partition(":") for part in _parts(inside) if part)
    return {name: kind for name, _, kind in pairs}


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _shown(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
