"""The part of JSON Schema that the API's documents use: what they promise is what is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class NotAsPromised(ValueError):
    """A value does not fit; says where and why."""


def check(value: Any, schema: Schema, where: str = "the body") -> None:
    """Refuse a value that does not fit."""
    if not schema:
        return
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(map(repr, schema["enum"]))
        raise NotAsPromised(f"{where} must be one of {choices}, got {value!r}.")
    kind = schema.get("type")
    if kind is not None and not _is_a(value, kind):
        raise NotAsPromised(f"{where} must be of type {kind}, got {value!r}.")
    _check_limits(value, schema, where)
    if isinstance(value, dict):
        _check_object(value, schema, where)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check(item, schema.get("items", {}), f"{where}[{number}]")


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()  # 3.0 is an integer in JSON Schema
    return isinstance(value, _TYPES[kind])


def _check_limits(value: Any, schema: Schema, where: str) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise NotAsPromised(f"{where} must be a finite number.")
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            low, high = schema.get("minimum", "any"), schema.get("maximum", "any")
            raise NotAsPromised(f"{where} must be from {low} to {high}, got {value!r}.")
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            least = schema["exclusiveMinimum"]
            raise NotAsPromised(f"{where} must be above {least}, got {value!r}.")
    if isinstance(value, str | list):
        name = "Length" if isinstance(value, str) else "Items"
        low, high = schema.get(f"min{name}", 0), schema.get(f"max{name}", math.inf)
        if not low <= len(value) <= high:
            raise NotAsPromised(f"{where} must have from {low} to {high} elements.")


def _check_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise NotAsPromised(f"{where} must have {name!r}.")
    for name, inner in value.items():
        if name in known:
            check(inner, known[name], f"{where}: {name}")
        elif schema.get("additionalProperties", True) is False:
            choices = ", ".join(known)
            raise NotAsPromised(f"{where} has {name!r}, which is not one of: {choices}.")


def from_text(text: str, schema: Schema, where: str) -> Any:
    """A value of a query string: text that is to be of a type."""
    kind = schema.get("type")
    value: Any = text
    try:
        if kind == "integer":
            value = int(text)
        elif kind == "number":
            value = float(text)
        elif kind == "boolean":
            value = {"true": True, "false": False}[text]
    except (KeyError, ValueError):
        raise NotAsPromised(f"{where} must be of type {kind}, got {text!r}.") from None
    check(value, schema, where)
    return value
