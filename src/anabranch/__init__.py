"""Anabranch: a state service for PySpark Structured Streaming."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import agg, errors
    from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
    from anabranch.service import StateService

__all__ = ["ColumnarProcessor", "KeyedBatch", "StateService", "Update", "agg", "errors"]

_COLUMNAR = "anabranch.processor.columnar.api"
_HOMES = {
    "ColumnarProcessor": _COLUMNAR,
    "KeyedBatch": _COLUMNAR,
    "StateService": "anabranch.service",
    "Update": _COLUMNAR,
}


def __getattr__(name: str) -> Any:
    """Import on first use: `anabranch --help` should not wait for PySpark."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"anabranch.{name}")
    raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
