"""Says in words where two JSON values differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_SHOWN_MAX = 5
_VALUE_LENGTH_MAX = 120


def differences(stored: Any, asked: Any) -> list[str]:
    """One line for each difference, the first few only; empty if the values are equal as JSON."""
    found = list(_walk("", normalised(stored), normalised(asked)))
    if len(found) > _SHOWN_MAX:
        return [*found[:_SHOWN_MAX], f"and {len(found) - _SHOWN_MAX} more"]
    return found


def normalised(value: Any) -> Any:
    """The value as it comes back from a JSON file (tuples are lists, keys are strings)."""
    return json.loads(json.dumps(value))


def _walk(path: str, stored: Any, asked: Any) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(asked, dict):
        for key in sorted(stored.keys() | asked.keys()):
            inner = f"{path}.{key}" if path else key
            if key not in asked:
                yield f"{inner}: stored {_shown(stored[key])}, now absent"
            elif key not in stored:
                yield f"{inner}: stored nothing, now {_shown(asked[key])}"
            else:
                yield from _walk(inner, stored[key], asked[key])
    elif isinstance(stored, list) and isinstance(asked, list) and len(stored) == len(asked):
        for number, (left, right) in enumerate(zip(stored, asked, strict=True)):
            yield from _walk(f"{path}[{number}]", left, right)
    elif stored != asked or type(stored) is not type(asked):
        yield f"{path or 'value'}: stored {_shown(stored)}, now {_shown(asked)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 3] + "..."
