"""The page: one file that needs nothing else, or a part of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any

from anabranch.report.pictures import pictures
from anabranch.report.span import BAD, MIB, Moved, Row, Span

EVENTS_MAX = 500
SLOWEST = 10

STYLE = """
.anabranch { --bg: #fff; --fg: #1c2430; --dim: #5a6675; --line: #dde3ea; --bad: #c1121f;
  --move: #f4a26133; color: var(--fg); background: var(--bg);
  font: 14px/1.45 system-ui, sans-serif; }
.anabranch h1 { font-size: 20px; } .anabranch h2 { font-size: 16px; margin: 1.4em 0 .4em; }
.anabranch svg { width: 100%; max-width: 960px; display: block; margin: .6em 0; }
.anabranch table { border-collapse: collapse; margin: .4em 0; }
.anabranch td, .anabranch th { text-align: left; vertical-align: top; padding: .2em .8em .2em 0;
  border-bottom: 1px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; }
.anabranch td:first-child { white-space: nowrap; }
.anabranch .facts td { border: 0; } .anabranch .dim { color: var(--dim); }
.anabranch tr.bad td { color: var(--bad); }
.anabranch svg text { fill: var(--fg); font: 12px system-ui, sans-serif; }
.anabranch svg .tick { fill: var(--dim); font-size: 11px; }
.anabranch svg .end { text-anchor: end; }
.anabranch svg .mid { text-anchor: middle; } .anabranch svg .grid { stroke: var(--line); }
.anabranch svg .line { fill: none; stroke-width: 1.6; } .anabranch svg .move { fill: var(--move); }
.anabranch svg .bad { stroke: var(--bad); stroke-width: 1.4; stroke-dasharray: 4 3; }
.anabranch .line.c0 { stroke: #2563a8; } .anabranch .line.c1 { stroke: #b4540a; }
.anabranch .line.c2 { stroke: #2e7d4f; } .anabranch .line.c3 { stroke: #8a3ea0; }
.anabranch .line.c4 { stroke: #6b6b1e; } .anabranch .line.c5 { stroke: #a03050; }
.anabranch .line.c6 { stroke: #1d7f8c; } .anabranch .line.c7 { stroke: #5a6675; }
.anabranch svg .c0 { fill: #2563a8; } .anabranch svg .c1 { fill: #b4540a; }
.anabranch svg .c2 { fill: #2e7d4f; } .anabranch svg .c3 { fill: #8a3ea0; }
.anabranch svg .c4 { fill: #6b6b1e; } .anabranch svg .c5 { fill: #a03050; }
.anabranch svg .c6 { fill: #1d7f8c; } .anabranch svg .c7 { fill: #5a6675; }
.anabranch svg polyline.line { fill: none; }
@media (prefers-color-scheme: dark) { .anabranch { --bg: #12171f; --fg: #e6ebf2; --dim: #9aa7b7;
  --line: #2b3542; --bad: #ff7b7b; --move: #f4a26140; } }
"""

HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    '<meta name="viewport" content="width=device-width">'
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    "<style>body {{ margin: 1.5em auto; max-width: 1000px; padding: 0 1em; }}"
    "@media (prefers-color-scheme: dark) {{ body {{ background: #12171f; }} }}</style></head>"
    "<body>"
)


def page(title: str, about: Sequence[str], span: Span) -> str:
    """A whole file."""
    return HEAD.format(title=escape(title)) + fragment(title, about, span) + "</body></html>\n"


def fragment(title: str, about: Sequence[str], span: Span) -> str:
    """The same, to be shown inside of another page."""
    lines = "".join(f"<br>{escape(line)}" for line in about)
    parts = [
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>",
        f'<p class="dim">{clock(span.since)} to {clock(span.until)}{lines}</p>',
        facts(span.facts()),
        *(chart.svg() for chart in pictures(span)),
    ]
    if not span.batches and not span.events:
        parts.append("<p>Nothing is written down of this time.</p>")
    else:
        text = "Shaded: reconfigurations. Dashed: deaths of workers and failed batches."
        parts.append(f'<p class="dim">{text}</p>')
    parts += [_moves(span.moves), _slowest(span), _events(span.events)]
    return f'<div class="anabranch">{"".join(parts)}</div>'


def facts(found: Mapping[str, Any]) -> str:
    """Names and values."""
    rows = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>"
        for name, value in found.items()
    )
    return f'<table class="facts">{rows}</table>'


def clock(at: float | datetime) -> str:
    """A moment in local time."""
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, timezone.utc)
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _table(title: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]]) -> str:
    body = "".join(
        f'<tr class="{style}">{"".join(f"<td>{escape(str(cell))}</td>" for cell in cells)}</tr>'
        for style, cells in rows
    )
    if not body:
        return ""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<h2>{escape(title)}</h2><table><tr>{top}</tr>{body}</table>"


def _moves(moves: Sequence[Moved]) -> str:
    heads = ("begun", "what", "asked by", "outcome", "seconds", "longest pause", "MiB")
    rows = [("", _move(move)) for move in moves]
    return _table("Reconfigurations", heads, rows)


def _move(move: Moved) -> list[str]:
    seconds = ""
    if move.started is not None and move.ended is not None:
        seconds = f"{move.ended - move.started:.2f}"
    started = "before" if move.started is None else clock(move.started)
    pause = f"{1000 * move.pause_seconds:.0f} ms"
    return [
        *(started, move.text, move.cause, move.outcome),
        *(seconds, pause, f"{move.bytes / MIB:,.1f}"),
    ]


def _slowest(span: Span) -> str:
    slow = sorted(span.batches, key=lambda batch: -batch.seconds)[:SLOWEST]
    heads = ("ended", "operator", "batch", "seconds", "rows", "load", "wait", "apply", "write")
    rows = [
        (
            "",
            [
                *(clock(batch.ended), batch.operator, batch.epoch, f"{batch.seconds:.3f}"),
                f"{batch.rows:,}",
                *(f"{seconds:.3f}" for seconds in batch.phases.values()),
            ],
        )
        for batch in slow
    ]
    return _table("Slowest batches", heads, rows)


def _events(events: Sequence[Row]) -> str:
    heads = ("time", "what", "whom", "")
    rows = [
        (
            "bad" if row["kind"] in BAD else "",
            [
                clock(row["time"]),
                row["kind"],
                " ".join(str(row[name]) for name in ("worker", "operator") if name in row),
                row.get("text", ""),
            ],
        )
        for row in events[-EVENTS_MAX:]
    ]
    title = "Events"
    if len(events) > EVENTS_MAX:
        title += f": the last {EVENTS_MAX} of {len(events)}"
    return _table(title, heads, rows)
