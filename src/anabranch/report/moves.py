"""One reconfiguration, as a notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from anabranch.report.chart import Chart
from anabranch.report.page import STYLE, facts
from anabranch.report.span import MIB, PHASES

TITLE = "Batches meanwhile, one bar each"


def move_fragment(title: str, report: Mapping[str, Any], cause: str) -> str:
    """What it did, and what each batch saw of it."""
    before, after = report["workers_before"], report["workers_after"]
    shown = {
        "outcome": report["outcome"],
        "strategy": report["strategy"],
        "asked by": cause,
        "workers": f"{len(before)} to {len(after)}",
        "key groups moved": f"{report['groups']:,}",
        "MiB": f"{report['bytes'] / MIB:,.1f}",
        "duration": f"{report['seconds']:.2f} s",
        "longest pause": f"{1000 * report['pause_seconds']:.0f} ms",
        "rows forwarded": f"{report['rows_forwarded']:,}",
        "batches meanwhile": len(report["batches"]),
    }
    parts = [f"<style>{STYLE}</style><h2>{escape(title)}</h2>", facts(shown)]
    if report["batches"]:
        parts.append(_batches(report["batches"]))
    return f'<div class="anabranch">{"".join(parts)}</div>'


def _batches(batches: Any) -> str:
    """Where the time of each went, one bar each; `load` is what it waited for moving state."""
    bars = [
        (number + 0.1, number + 0.9, {name: batch[f"{name}_ms"] / 1000 for name in PHASES})
        for number, batch in enumerate(batches)
    ]
    top = max(sum(parts.values()) for _, _, parts in bars)
    chart = Chart(TITLE, "s", 0.0, float(len(bars)), top, has_clock=False)
    chart.stack(PHASES, bars)
    return chart.svg()
