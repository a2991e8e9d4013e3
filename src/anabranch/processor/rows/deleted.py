"""State variables that `init` defined and then deleted: Spark lets them be, but not be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import PySparkRuntimeError

from anabranch.processor.rows.misuse import misuse
from anabranch.state.rows.layout import Kind

_ACTIONS: dict[Kind, dict[str, str]] = {
    "value": {
        "exists": "checking value state exists",
        "get": "getting value state",
        "update": "updating value state",
        "clear": "clearing value state",
    },
    "list": {
        "exists": "checking value state exists",
        "put": "updating value state",
        "appendValue": "updating value state",
        "appendList": "updating value state",
        "clear": "clearing value state",
    },
    "map": {
        "exists": "checking map state exists",
        "getValue": "getting value",
        "containsKey": "checking if map state contains key",
        "updateValue": "updating map state value",
        "removeKey": "removing key from map state",
        "clear": "clearing map state",
    },
}
"""What Spark says that it was doing."""

_EMPTY: dict[Kind, tuple[str, ...]] = {
    "value": (),
    "list": ("get",),
    "map": ("iterator", "keys", "values"),
}
"""Spark takes the error for the end of these iterators."""


class DeletedState:
    """In place of a `ValueState`, `ListState` or `MapState` that has no place in the layout."""

    def __init__(self, kind: Kind, name: str, is_deleted: Callable[[str], bool]) -> None:
        self._kind = kind
        self._name = name
        self._is_deleted = is_deleted

    def __getattr__(self, method: str) -> Callable[..., Iterator[Any]]:
        if method not in _ACTIONS[self._kind] and method not in _EMPTY[self._kind]:
            raise AttributeError(f"{self._kind} state has no {method!r}")

        def refuse(*_: object) -> Iterator[Any]:
            kind, name = self._kind, self._name
            action = _ACTIONS[kind].get(method, f"getting {kind} state")
            if not self._is_deleted(name):
                raise misuse(action, "STATE_STORE_UNSUPPORTED_VARIABLE", stateName=name)
            if method in _EMPTY[kind]:
                return iter(())
            raise PySparkRuntimeError(
                f"Error {action}: {kind.capitalize()} state {name} is not initialized."
            )

        return refuse
