"""Anabranch: a state service for PySpark Structured Streaming."""

from __future__ import annotations

from anabranch import agg
from anabranch.service import StateService

__all__ = ["StateService", "agg"]
