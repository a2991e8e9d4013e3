"""What is done to a query in the middle of a run: nothing, a strategy, or Spark's native way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import InvalidArgument

CONTROL = "control"
"""Label of runs without a move."""
NATIVE = "spark"
"""Label of Spark's own way: stop, repartition the checkpoint, start again."""

STRATEGIES = (
    "live",
    "lazy",
    "meces",
    "drrs",
    "rhino",
    "replicate",
    "megaphone",
    "order-unaware",
    "pause",
    "stop-restart",
)
"""All, in the order of reports: first those that do not make rows wait for whole key groups."""


@dataclass(frozen=True, slots=True)
class Case:
    """A strategy with its options, or its absence."""

    label: str
    strategy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Case:
        """`live`, `meces:batch=5`, `megaphone:plan=fluid`, `control` or `spark`."""
        name, _, rest = text.partition(":")
        if name in (CONTROL, NATIVE):
            return cls(name)
        options: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                raise InvalidArgument(f"'{text}': write options as {name}:name=value,name=value.")
            options[key] = _number_or_text(value)
        return cls(text, name, options)


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value
