"""Watches a method of a running worker, so that a test waits for an event and not for the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest


class Watch:
    """Calls of a method: when the first one begins, and whether something is so at each end."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, target: Any, method: str, is_so: Callable[[], bool]
    ) -> None:
        self._begun = threading.Event()
        self._is_so = is_so
        self._call = getattr(target, method)
        self.before: list[bool] = []
        self.after: list[bool] = []
        monkeypatch.setattr(target, method, self._watched)

    def wait(self) -> None:
        """Until somebody calls the method."""
        assert self._begun.wait(20), "nobody calls it"

    def _watched(self, *arguments: Any, **named: Any) -> Any:
        self.before.append(self._is_so())
        self._begun.set()
        result = self._call(*arguments, **named)
        self.after.append(self._is_so())
        return result
