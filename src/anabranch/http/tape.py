"""The journal as a page wants it: columns of batches, owners over time, loads, moves, marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.coordinator.journal_notes import SPARK_COLUMNS, WHOLE_SECONDS
from anabranch.durability.journal import JournalContent
from anabranch.model.journal_entry import EntryKind

BATCHES_MAX = 20_000
"""The newest of a span; a page has fewer columns of pixels."""
BACK_SECONDS = WHOLE_SECONDS + 120.0
"""A reader that goes so far back finds a whole picture of the owners."""

BATCH_COLUMNS = ("epoch", "seconds", "rows", "load_ms", "wait_ms", "apply_ms", "write_ms")
MARKS = (
    EntryKind.SERVICE_STARTED,
    EntryKind.SERVICE_STOPPED,
    EntryKind.BATCH_FAILED,
    EntryKind.WORKER_STARTED,
    EntryKind.WORKER_ENDED,
    EntryKind.SAVEPOINT,
    EntryKind.LOST,
)
ACTIVITIES = ("applying", "fetching", "writing", "sending")


def tape(content: JournalContent, since: float) -> dict[str, Any]:
    """From a time on; read from BACK_SECONDS before it, so that the first owners are known."""
    entries = content.entries
    by_kind = {kind: _rows(entries, kind) for kind in (*MARKS, *_DETAILED)}
    return {
        "since": since,
        "alive_at": content.alive_at,
        "damaged": content.damaged,
        "batches": _batches(entries, since, by_kind[EntryKind.SPARK]),
        "ownership": _ownership(by_kind[EntryKind.OWNERSHIP], since),
        "loads": [_load(row) for row in by_kind[EntryKind.LOAD] if _time(row) >= since],
        "moves": _moves(by_kind, since),
        "marks": sorted(
            (_mark(row) for kind in MARKS for row in by_kind[kind] if _time(row) >= since),
            key=lambda mark: float(mark["time"]),
        ),
    }


_DETAILED = (
    EntryKind.OWNERSHIP,
    EntryKind.LOAD,
    EntryKind.SPARK,
    EntryKind.MOVE_STARTED,
    EntryKind.MOVE_ENDED,
)


def _rows(entries: pa.Table, kind: EntryKind) -> list[dict[str, Any]]:
    found = entries.filter(pc.equal(entries["kind"].cast(pa.string()), kind.value))
    return JournalContent(found).rows()


def _time(row: Mapping[str, Any]) -> float:
    return float(row["time"].timestamp())


def _batches(entries: pa.Table, since: float, spark: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns; an operator is a position in a list of names. Spark's own come from its entries."""
    is_wanted = pc.and_(
        pc.equal(entries["kind"].cast(pa.string()), EntryKind.BATCH.value),
        pc.greater_equal(entries["time"].cast(pa.int64()), round(since * 1e6)),
    )
    found = entries.filter(is_wanted)
    total = found.num_rows
    found = found.slice(max(0, total - BATCHES_MAX))
    names = sorted(set(found["operator"].cast(pa.string()).to_pylist()) - {None})
    position = {name: at for at, name in enumerate(names)}
    return {
        "operators": names,
        "left_out": total - found.num_rows,
        "operator": [position.get(name, -1) for name in found["operator"].to_pylist()],
        "time": [at / 1e6 for at in found["time"].cast(pa.int64()).to_pylist()],
        **{name: found[name].to_pylist() for name in BATCH_COLUMNS},
        **_of_spark(found, spark),
    }


def _of_spark(batches: pa.Table, spark: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What Spark took around each batch; None: it was not noted."""
    columns = [name for name in SPARK_COLUMNS if name != "epoch"]
    known: dict[tuple[str, int], tuple[Any, ...]] = {}
    for row in spark:
        details = row["details"]
        values = zip(*(details[name] for name in columns), strict=True)
        for epoch, some in zip(details["epoch"], values, strict=True):
            known[row.get("operator", ""), epoch] = some
    keys = zip(batches["operator"].to_pylist(), batches["epoch"].to_pylist(), strict=True)
    nothing = (None,) * len(columns)
    found = [known.get(key, nothing) for key in keys]
    return {name: [each[at] for each in found] for at, name in enumerate(columns)}


def _ownership(rows: Sequence[Mapping[str, Any]], since: float) -> list[dict[str, Any]]:
    """From the last whole picture before the time on, or else from the first there is."""
    wholes = [at for at, row in enumerate(rows) if "owners" in row["details"]]
    if not wholes:
        return []
    first = max((at for at in wholes if _time(rows[at]) <= since), default=wholes[0])
    return [{"time": _time(row), **row["details"]} for row in rows[first:]]


def _load(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns over workers, of all operators together."""
    workers: Mapping[str, Any] = row["details"]
    held = {name: list(each["operators"].values()) for name, each in workers.items()}
    return {
        "time": _time(row),
        "workers": list(workers),
        "rows": [sum(each["rows"] for each in some) for some in held.values()],
        "bytes": [sum(each["bytes"] for each in some) for some in held.values()],
        "resident_bytes": [each["resident_bytes"] for each in workers.values()],
        **{
            activity: [
                round(sum(each["busy_seconds"].get(activity, 0.0) for each in some), 3)
                for some in held.values()
            ]
            for activity in ACTIVITIES
        },
    }


def _moves(
    by_kind: Mapping[EntryKind, Sequence[Mapping[str, Any]]], since: float
) -> list[dict[str, Any]]:
    """Those that were under way at some time since; `ended` is None: no end was noted."""
    found: list[dict[str, Any]] = []
    for row in _in_order(by_kind[EntryKind.MOVE_STARTED], by_kind[EntryKind.MOVE_ENDED]):
        if row["kind"] == EntryKind.MOVE_STARTED.value:
            found.append({**row["details"], "started": _time(row), "ended": None})
            continue
        number = row["details"].get("number")
        for move in reversed(found):
            if move["number"] == number and move["ended"] is None:
                move.update(row["details"], ended=_time(row))
                break
    return [move for move in found if move["ended"] is None or move["ended"] >= since]


def _in_order(*several: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted((row for rows in several for row in rows), key=_time)


def _mark(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "time": _time(row)}
