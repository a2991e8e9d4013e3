"""One thing that can be asked over HTTP, with what it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.http.schema import Schema

OBJECT: Schema = {"type": "object"}
LIST: Schema = {"type": "array", "items": OBJECT}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 100_000}
TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
MOMENT: Schema = {"type": "number", "minimum": 0, "maximum": 1e11}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that fits the operation's document."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    cause: str
    key: str | None
    """Idempotency-Key."""


Answer = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked."""

    method: str
    path: str
    name: str
    summary: str
    handle: Callable[[ApiCall], Answer]
    query: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: Schema | None = None
    answers: Mapping[int, Schema] = field(default_factory=lambda: {200: OBJECT})
    errors: tuple[int, ...] = ()
    """Beside those of every operation."""
