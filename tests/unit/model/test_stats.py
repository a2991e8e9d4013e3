"""Statistics of transactions that run side by side, added up."""

from __future__ import annotations

from anabranch.model.stats import TIMES, add_stats


def test_counts_add_up_and_of_times_the_longest_counts() -> None:
    total: dict[str, int] = {}
    add_stats(total, {"rows": 3, "load_ms": 5, "apply_ms": 1})
    add_stats(total, {"rows": 4, "load_ms": 2, "apply_ms": 8, "rows_forwarded": 1})
    assert total == {"rows": 7, "load_ms": 5, "apply_ms": 8, "rows_forwarded": 1}
    assert {"load_ms", "apply_ms"} < set(TIMES)
