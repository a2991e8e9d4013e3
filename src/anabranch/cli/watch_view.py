"""What `anabranch watch` shows: pictures of a service as tables of Rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch.cli.status import readable_size

BARS = "▁▂▃▄▅▆▇█"
BATCHES_DRAWN = 60
WORKERS_SHOWN = 24
APPLYING = "applying"
HOT = 0.85
"""A worker that applies for more of its time is shown in red."""


@dataclass(frozen=True, slots=True)
class WatchSample:
    """A look at a service, and when it was taken."""

    at: float
    status: Mapping[str, Any]
    moves: Sequence[Mapping[str, Any]]
    events: Sequence[str]


def view(
    location: str, now: WatchSample, before: WatchSample | None, trouble: str = ""
) -> RenderableType:
    """One frame."""
    status = now.status
    up = sum(shown["status"] == "up" for shown in status["workers"].values())
    head = Text.assemble(
        (location, "bold"),
        f"   {up} of {len(status['workers'])} workers up, routing {status['routing_version']}",
    )
    parts: list[RenderableType] = [head, _operators(status["operators"])]
    parts.append(_workers(status["workers"], busy_shares(now, before)))
    parts += [_move(move) for move in now.moves if not move["is_done"]]
    if now.events:
        parts.append(Panel("\n".join(now.events), title="events", title_align="left"))
    if trouble:
        parts.append(Text(trouble, style="bold red"))
    return Group(*parts)


def busy_shares(now: WatchSample, before: WatchSample | None) -> dict[str, float]:
    """For how much of the time each worker applied since the sample before."""
    if before is None or now.at <= before.at:
        return {}
    shares = {}
    for worker, shown in now.status["workers"].items():
        earlier = before.status["workers"].get(worker)
        if earlier is None or earlier.get("pid") != shown.get("pid"):
            continue  # another process counts from zero
        grown = _applied(shown) - _applied(earlier)
        shares[worker] = max(0.0, grown / (now.at - before.at))
    return shares


def sparkline(values: Sequence[float]) -> str:
    """Heights from nothing to the highest."""
    top = max(values, default=0.0)
    if not top:
        return BARS[0] * len(values)
    return "".join(BARS[min(7, int(8 * value / top))] for value in values)


def _applied(shown: Mapping[str, Any]) -> float:
    return float(sum(each.get(APPLYING, 0.0) for each in shown["busy_seconds"].values()))


def _operators(operators: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("operator", "epoch", "last batch", "rows/s", "state", "time of batches"):
        table.add_column(name, justify="left" if name in ("operator",) else "right", no_wrap=True)
    for name, shown in operators.items():
        ended = [batch for batch in shown["batches"] if batch["seconds"] is not None]
        seconds = [batch["seconds"] for batch in ended[-BATCHES_DRAWN:]]
        last = f"{seconds[-1]:.3f} s" if seconds else ""
        table.add_row(
            name,
            str(shown["last_epoch"]),
            last,
            f"{_rate(ended):,.0f}",
            f"{shown['rows']:,} keys, {readable_size(shown['bytes'])}",
            sparkline(seconds),
        )
    return table


def _rate(ended: Sequence[Mapping[str, Any]]) -> float:
    """Rows a second of the last batches."""
    some = ended[-10:]
    if len(some) < 2:
        return 0.0
    took = some[-1]["started"] + some[-1]["seconds"] - some[0]["started"]
    rows: float = sum(batch["stats"].get("rows_input", 0) for batch in some)
    return rows / took if took > 0 else 0.0


def _workers(workers: Mapping[str, Mapping[str, Any]], shares: Mapping[str, float]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("worker", "status", "busy", "key groups", "state", "memory", "restarts"):
        table.add_column(name, justify="left" if name in ("worker", "status") else "right")
    for name, shown in list(workers.items())[:WORKERS_SHOWN]:
        share = shares.get(name)
        table.add_row(
            name,
            Text(shown["status"], style="" if shown["status"] == "up" else "bold red"),
            "" if share is None else Text(f"{share:.0%}", style="red" if share > HOT else ""),
            str(shown["key_groups"]),
            readable_size(shown.get("bytes") or 0),
            readable_size(shown["resident_bytes"] or 0),
            str(shown["restarts"]),
        )
    if len(workers) > WORKERS_SHOWN:
        table.add_row(f"... {len(workers)} workers")
    return table


def _move(move: Mapping[str, Any]) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    before, after = len(move["workers_before"]), len(move["workers_after"])
    line.add_row(
        f"move {move['number']}: {move['strategy']}, {before} -> {after} workers",
        ProgressBar(total=1.0, completed=move["progress"], width=30),
        f"{move['progress']:.0%}, {readable_size(move['bytes'])}, longest pause "
        f"{1000 * move['pause_seconds']:.0f} ms",
    )
    return line
