"""Anabranch: a state service for PySpark Structured Streaming."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import agg, errors
    from anabranch.coordinator.joined_hosts import JoinedHosts
    from anabranch.durability.savepoint import Savepoint
    from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
    from anabranch.service import StateService
    from anabranch.spark.handback import Restoring, initial_state, source_offsets
    from anabranch.spark.hosts import SparkHosts
    from anabranch.spark.query_progress import ProgressListener, QueryProgress
    from anabranch.spark.state_source import register

__all__ = [
    "ColumnarProcessor",
    "JoinedHosts",
    "KeyedBatch",
    "ProgressListener",
    "QueryProgress",
    "Restoring",
    "Savepoint",
    "SparkHosts",
    "StateService",
    "Update",
    "agg",
    "errors",
    "initial_state",
    "register",
    "source_offsets",
]

_COLUMNAR = "anabranch.processor.columnar.api"
_PROGRESS = "anabranch.spark.query_progress"
_EXPORTING = "anabranch.spark.handback"
_HOMES = {
    "ColumnarProcessor": _COLUMNAR,
    "JoinedHosts": "anabranch.coordinator.joined_hosts",
    "KeyedBatch": _COLUMNAR,
    "ProgressListener": _PROGRESS,
    "QueryProgress": _PROGRESS,
    "Restoring": _EXPORTING,
    "Savepoint": "anabranch.durability.savepoint",
    "SparkHosts": "anabranch.spark.hosts",
    "StateService": "anabranch.service",
    "Update": _COLUMNAR,
    "initial_state": _EXPORTING,
    "register": "anabranch.spark.state_source",
    "source_offsets": _EXPORTING,
}


def __getattr__(name: str) -> Any:
    """Import on first use: `anabranch --help` should not wait for PySpark."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"anabranch.{name}")
    raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
