"""Which changes of an operator the state stored before survives, and words for those it does not.

Columns of columnar operators may be added. `rows/value_evolution.py` has more for processors.
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
            found.append(f"{what}: field {name!r} ({cut(kind)}) was removed")
        elif now[name] != kind:
            found.append(f"{what}: field {name!r} was {cut(kind)}, now it is {cut(now[name])}")
    return found


def struct_fields(text: str) -> dict[str, str]:
    """Names and types of a struct in Spark's short notation, `struct<a:int,b:map<int,string>>`."""
    inside = text.removeprefix("struct<").removesuffix(">")
    pairs = (part.partition(":") for part in parts_of(inside) if part)
    return {name: kind for name, _, kind in pairs}


def parts_of(text: str) -> Iterator[str]:
    """What stands between the outer commas."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _shown(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False))


def cut(text: str) -> str:
    """As much of a text as an error can show."""
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
