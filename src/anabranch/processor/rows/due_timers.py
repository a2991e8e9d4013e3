"""Which timers of a key group fire, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.processor.rows.variables import in_order
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import HASH_AT, TIMERS_AT


def due_timers(state: RowGroupState, until_ms: int) -> list[tuple[int, Any]]:
    """Time and key of all that are due; takes them."""
    return [
        (expiry_ms, key)
        for expiry_ms, keys in state.take_timers(until_ms)
        for key in _by_hash(state, keys, expiry_ms)
    ]


def _by_hash(state: RowGroupState, keys: Iterable[Any], expiry_ms: int) -> list[Any]:
    """Keys whose timer is still there, in an order that depends on nothing but the keys."""
    records = state.records
    live = [key for key in keys if key in records and expiry_ms in (records[key][TIMERS_AT] or ())]
    return sorted(in_order(live), key=lambda key: records[key][HASH_AT]) if len(live) > 1 else live
