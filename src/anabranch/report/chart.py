"""A chart over time as SVG: lines, stacked bars, shaded spans and marks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape

WIDTH, HEIGHT = 960, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 34, 26, 26
COLORS = 8
"""Classes c0 to c7 of the page's style."""
TICKS = 6
STEPS_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)

Points = Sequence[tuple[float, float]]
Bar = tuple[float, float, Mapping[str, float]]
"""From when until when, and its parts."""


@dataclass(slots=True)
class Chart:
    """What is drawn between two times, from zero to `top`."""

    title: str
    unit: str
    since: float
    until: float
    top: float
    has_clock: bool = True
    """Whether the times are Unix times."""
    parts: list[str] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)
    """Class and text of each series, for the legend."""

    def __post_init__(self) -> None:
        self.until = max(self.until, self.since + 1e-3)
        self.top = self.top if self.top > 0 and math.isfinite(self.top) else 1.0

    def x(self, at: float) -> float:
        """Where a time is."""
        share = (at - self.since) / (self.until - self.since)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Where a value is."""
        share = min(1.0, max(0.0, value / self.top))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def line(self, name: str, points: Points, number: int) -> None:
        """A series; a single point is a dot."""
        style = self._named(name, number)
        drawn = [f"{self.x(at):.1f},{self.y(value):.1f}" for at, value in points]
        if len(drawn) == 1:
            x, _, y = drawn[0].partition(",")
            self.parts.append(f'<circle class="dot {style}" cx="{x}" cy="{y}" r="3"/>')
        elif drawn:
            self.parts.append(f'<polyline class="line {style}" points="{" ".join(drawn)}"/>')

    def stack(self, names: Sequence[str], bars: Sequence[Bar]) -> None:
        """Bars from one time to another, each of several parts on top of each other."""
        styles = {name: self._named(name, number) for number, name in enumerate(names)}
        for start, end, values in bars:
            below = 0.0
            left, width = self.x(start), max(1.0, self.x(end) - self.x(start))
            for name in names:
                above = below + values.get(name, 0.0)
                top, height = self.y(above), self.y(below) - self.y(above)
                if height >= 0.1:
                    self.parts.append(
                        f'<rect class="bar {styles[name]}" x="{left:.1f}" y="{top:.1f}" '
                        f'width="{width:.1f}" height="{height:.1f}"/>'
                    )
                below = above

    def shade(self, start: float, end: float, text: str) -> None:
        """A span behind everything that is drawn later."""
        left, width = self.x(start), max(2.0, self.x(end) - self.x(start))
        self.parts.append(
            f'<rect class="move" x="{left:.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"><title>{escape(text)}</title></rect>'
        )

    def mark(self, at: float, text: str) -> None:
        """A moment."""
        x = f"{self.x(at):.1f}"
        self.parts.append(
            f'<line class="bad" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
            f"<title>{escape(text)}</title></line>"
        )

    def svg(self) -> str:
        """The picture."""
        legend = "".join(
            f'<tspan class="{style}" dx="12">■ </tspan><tspan>{escape(name)}</tspan>'
            for style, name in self.names
        )
        label = escape(f"{self.title}, {self.unit}", quote=True)
        return (
            f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}">'
            f'<text class="title" x="{LEFT}" y="16">{escape(self.title)} ({escape(self.unit)})'
            f"{legend}</text>{self._axes()}{''.join(self.parts)}</svg>"
        )

    def _named(self, name: str, number: int) -> str:
        style = f"c{number % COLORS}"
        self.names.append((style, name))
        return style

    def _axes(self) -> str:
        parts = []
        for value in nice_values(self.top):
            y = f"{self.y(value):.1f}"
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
            text = f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"
            parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{y}" dy="4">{text}</text>')
        for at in nice_times(self.since, self.until) if self.has_clock else ():
            moment = datetime.fromtimestamp(at, timezone.utc).astimezone()
            x = f"{self.x(at):.1f}"
            text = f'<text class="tick mid" x="{x}" y="{HEIGHT - 8}">{moment:%H:%M:%S}</text>'
            parts.append(text)
        return "".join(parts)


def nice_values(top: float) -> list[float]:
    """Round values from zero up to the top."""
    step: float = 10 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if top / s <= TICKS)
    return [number * step for number in range(int(top / step) + 1)]


def nice_times(since: float, until: float) -> list[float]:
    """Round times between two."""
    length = until - since
    step = next((s for s in STEPS_SECONDS if length / s <= 2 * TICKS), length / TICKS)
    first = math.ceil(since / step)
    return [n * step for n in range(first, int(until // step) + 1)]
