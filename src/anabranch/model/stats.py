"""What transactions report, added up over workers and lanes."""

from __future__ import annotations

from collections.abc import Mapping

TIMES = ("load_ms", "wait_ms", "apply_ms", "write_ms")
"""Where a transaction's time went: fetching state, waiting for its turn, user code, changelog."""


ROWS_FORWARDED = "rows_forwarded"
"""Rows that came to a worker that no longer owned their key groups, and were passed on."""

ROWS_DEFERRED = "rows_deferred"
"""Rows that were put into a checkpoint as they came, to be applied with a later batch."""

STATE_ROWS, STATE_BYTES = "state_rows", "state_bytes"
"""Entries of state after the transaction in its key groups, and their size, about."""


def add_stats(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Transactions run side by side: counts add up, of times the longest counts."""
    for name, value in more.items():
        before = total.get(name, 0)
        total[name] = max(before, value) if name in TIMES else before + value
