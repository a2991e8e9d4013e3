"""Every test here runs on every backend."""

from __future__ import annotations

from tests.unit.state.backends import backend, on_every_backend

__all__ = ["backend", "on_every_backend"]
