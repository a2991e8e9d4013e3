"""Tables of texts, and how numbers look in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Cells as they are shown."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def markdown(self) -> str:
        """With columns of even width: good to read as text too."""
        lines = [[cell.replace("|", "/") for cell in line] for line in (self.columns, *self.rows)]
        widths = [max(3, *(len(line[n]) for line in lines)) for n in range(len(self.columns))]
        lines.insert(1, ["-" * width for width in widths])
        shown = [
            f"| {' | '.join(c.ljust(w) for c, w in zip(line, widths, strict=True))} |"
            for line in lines
        ]
        note = ["", self.note] if self.note else []
        return "\n".join([f"### {self.title}", "", *shown, *note])

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def seconds_cell(value: float) -> str:
    """With two digits."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def number_cell(value: float) -> str:
    """With one digit."""
    return f"{value:,.1f}" if math.isfinite(value) else "-"


def count_cell(value: float) -> str:
    """Without digits."""
    return f"{value:,.0f}" if math.isfinite(value) else "-"


def percent_cell(value: float) -> str:
    """Of one."""
    return f"{value:.0%}" if math.isfinite(value) else "-"
