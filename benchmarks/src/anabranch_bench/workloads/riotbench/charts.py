"""Charts: an SVG with a line for each field, and zip archives of many of them."""

from __future__ import annotations

import fcntl
import html
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

WIDTH, HEIGHT, MARGIN = 800, 600, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")

Points = Sequence[tuple[int, float]]
"""Times in milliseconds, and values."""


def draw(title: str, lines: Mapping[str, Points]) -> str:
    """A multi-line chart; x is the time since the first point.

    By hand: a batch may have hundreds of them, and a few lines of SVG need no plotting library.
    """
    points = [point for line in lines.values() for point in line]
    start, end = min(p[0] for p in points), max(p[0] for p in points)
    low, high = min(p[1] for p in points), max(p[1] for p in points)

    def x(at_ms: int) -> float:
        return MARGIN + (at_ms - start) / max(end - start, 1) * (WIDTH - 2 * MARGIN)

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
        '<rect width="100%" height="100%" fill="white"/>',
        _label(WIDTH / 2, MARGIN / 2, title, "middle"),
        _label(WIDTH - MARGIN, HEIGHT - MARGIN / 2, f"{end - start} ms", "end"),
        _label(MARGIN, HEIGHT - MARGIN / 2, "0", "start"),
        _label(MARGIN - 5, MARGIN, f"{high:.4g}", "end"),
        _label(MARGIN - 5, HEIGHT - MARGIN, f"{low:.4g}", "end"),
    ]
    for number, (name, line) in enumerate(sorted(lines.items())):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in sorted(line))
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
        parts += [
            f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="2" fill="{colour}"/>'
            for at, value in line
        ]
        parts.append(_label(MARGIN + 5, MARGIN + 16 * number, name, "start", colour))
    return "\n".join([*parts, "</svg>\n"])


def _label(x: float, y: float, text: str, anchor: str, colour: str = "black") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}" '
        f'font-family="sans-serif" font-size="13">{html.escape(text)}</text>'
    )


@dataclass(frozen=True)
class ChartFolder:
    """Charts as files; as soon as there are `size` of them they go into the next archive.

    Adding charts again, as a task does that Spark runs twice, changes nothing.
    """

    path: str
    size: int

    @property
    def archives(self) -> list[Path]:
        """All archives, oldest first."""
        return sorted(Path(self.path).glob("charts-*.zip"))

    @property
    def waiting(self) -> list[Path]:
        """Charts that are not in an archive yet."""
        return sorted(Path(self.path).glob("*.svg"))

    def add(self, charts: Mapping[str, str]) -> None:
        """Charts by name."""
        os.makedirs(self.path, exist_ok=True)
        with self._locked() as index:
            done = set(index.read_text(encoding="utf-8").split()) if index.exists() else set()
            found = {file.name: file.read_text(encoding="utf-8") for file in self.waiting}
            found |= {f"{name}.svg": text for name, text in charts.items()}
            names = [name for name in found if name not in done]
            while len(names) >= self.size:
                some, names = names[: self.size], names[self.size :]
                self._archive(len(done) // self.size, {name: found[name] for name in some})
                done.update(some)
                # The index decides. Killed before it, this archive is written again.
                with index.open("a", encoding="utf-8") as lines:
                    lines.writelines(f"{name}\n" for name in some)
            for name in names:
                Path(self.path, name).write_text(found[name], encoding="utf-8")
            for file in self.waiting:
                if file.name not in names:
                    file.unlink()

    def _archive(self, number: int, charts: Mapping[str, str]) -> None:
        target = Path(self.path, f"charts-{number:05d}.zip")
        scratch = target.with_suffix(".new")
        with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in charts.items():
                archive.writestr(name, text)
        scratch.replace(target)

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        with open(Path(self.path, "lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(self.path, "archived.txt")


@dataclass(frozen=True)
class DrawCharts:
    """A task that draws the flushes among its rows and hands all rows on."""

    folder: ChartFolder

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows."""
        lines: dict[tuple[str, str, int, int], dict[str, list[tuple[int, float]]]] = {}
        for row in rows.to_pylist():
            chart = (row["statistic"], row["sensor"], row["shard"], row["flush"])
            line = lines.setdefault(chart, {}).setdefault(row["field"], [])
            line.append((row["at_ms"], row["results"][0]))
        charts = {
            f"{statistic}-{_word(sensor)}-{shard}-{flush}": draw(f"{statistic} of {sensor}", found)
            for (statistic, sensor, shard, flush), found in lines.items()
        }
        if charts:
            self.folder.add(charts)
        return rows


def _word(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"\W", "_", text)
