"""The pictures of a span: latency, throughput, where the time went, how busy workers were."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.report.chart import COLORS, Chart, Points
from anabranch.report.span import PHASES, Span, SpanBatch

POINTS_MAX = 480
"""More are put together: half as many pixels."""

ROOM = 1.08
"""Above the highest value."""


def pictures(span: Span) -> list[Chart]:
    """All that there is something to draw for."""
    found = []
    if span.batches:
        found += [_latency(span), _throughput(span), _phases(span)]
    if span.busy:
        found.append(_busy(span))
    return found


def _chart(span: Span, title: str, unit: str, top: float) -> Chart:
    chart = Chart(title, unit, span.since, span.until, ROOM * top)
    for move in span.moves:
        start = span.since if move.started is None else move.started
        end = span.until if move.ended is None else move.ended
        chart.shade(start, end, f"{move.text}, {move.outcome}")
    return chart


def _marked(chart: Chart, span: Span) -> Chart:
    for row in span.bad:
        text = " ".join(str(row.get(name, "")) for name in ("kind", "worker", "operator", "text"))
        chart.mark(row["time"].timestamp(), text)
    return chart


def _latency(span: Span) -> Chart:
    chart = _chart(span, "Time of each batch", "s", max(b.seconds for b in span.batches))
    for number, (name, batches) in enumerate(_by_operator(span)):
        points = [(batch.ended, batch.seconds) for batch in batches]
        chart.line(name, _thinned(points, span, max), number)
    return _marked(chart, span)


def _throughput(span: Span) -> Chart:
    width = _width(span)
    series = []
    for name, batches in _by_operator(span):
        rows: dict[int, float] = {}
        for batch in batches:
            slot = int((batch.ended - span.since) / width)
            rows[slot] = rows.get(slot, 0.0) + batch.rows / width
        last = max(rows)
        points = [(span.since + (slot + 0.5) * width, rows.get(slot, 0.0)) for slot in
                  range(min(rows), last + 1)]  # fmt: skip
        series.append((name, points))
    top = max(value for _, points in series for _, value in points)
    chart = _chart(span, "Throughput", "rows/s", top)
    for number, (name, points) in enumerate(series):
        chart.line(name, points, number)
    return _marked(chart, span)


def _phases(span: Span) -> Chart:
    slots: dict[int, SpanBatch] = {}
    width = _width(span)
    for batch in span.batches:  # the slowest of each slot is shown
        slot = int((batch.ended - span.since) / width)
        if slot not in slots or batch.seconds > slots[slot].seconds:
            slots[slot] = batch
    bars = [
        (b.ended - min(width, max(b.seconds, width / 2)), b.ended, b.phases) for b in slots.values()
    ]
    top = max(sum(b.phases.values()) for b in slots.values())
    chart = _chart(span, "Where the slowest transaction of a batch spent its time", "s", top)
    chart.stack(PHASES, bars)
    return _marked(chart, span)


def _busy(span: Span) -> Chart:
    """The busiest workers; more lines than colours would say nothing."""
    last = sorted(span.busy, key=lambda worker: -max(share for _, share in span.busy[worker]))
    top = max(share for worker in last for _, share in span.busy[worker])
    chart = _chart(span, "Workers that apply, share of the time", "1 is all of it", max(1.0, top))
    for number, worker in enumerate(sorted(last[:COLORS])):
        chart.line(worker, span.busy[worker], number)
    return _marked(chart, span)


def _by_operator(span: Span) -> list[tuple[str, list[SpanBatch]]]:
    names = span.operators()[:COLORS]
    return [(name, [b for b in span.batches if b.operator == name]) for name in names]


def _width(span: Span) -> float:
    """Seconds that are one point."""
    return max(1.0, (span.until - span.since) / POINTS_MAX)


def _thinned(points: Points, span: Span, of: Callable[[Sequence[float]], float]) -> Points:
    if len(points) <= POINTS_MAX:
        return points
    slots: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        slots.setdefault(int((point[0] - span.since) / _width(span)), []).append(point)
    return [(some[-1][0], of([value for _, value in some])) for some in slots.values()]
