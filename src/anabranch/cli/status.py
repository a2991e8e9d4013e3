"""`anabranch status`: whether a service runs on a location, and what it last did."""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from anabranch.cli.history import clock, line
from anabranch.cli.stuck_calls import about, begun, stuck_calls
from anabranch.model.journal_entry import FREQUENT, EntryKind

if TYPE_CHECKING:
    from anabranch.durability.journal import JournalContent
    from anabranch.durability.store import StateStore

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Say whether a service runs on a state location, when it ended if not, and what it last did. It reads
the location, so it works when nothing runs; a service that runs is asked for its workers too.
Exit code: 0 if a service runs, 3 if none does.
"""
EXIT_NOT_RUNNING = 3
RECENT_SECONDS = 600.0
SILENT_SECONDS_MAX = 150.0
"""A service on another machine that wrote nothing for longer is taken for dead."""
EVENTS_SHOWN = 5
LIVE_SECONDS_MAX = 5.0
"""For the answer of a service that may hang."""
WORKERS_SHOWN = 20


@dataclass(slots=True)
class OperatorPicture:
    """An operator as the location has it."""

    last_epoch: int | None
    committed_at: float | None
    bytes: int
    epochs_kept: int


@dataclass(slots=True)
class LocationPicture:
    """A location and the service on it."""

    location: str
    is_running: bool
    how: str
    """The same as a sentence."""
    ended_at: float | None = None
    """When it was alive for sure last, if it does not run."""
    operators: dict[str, OperatorPicture] = field(default_factory=dict)
    batches: dict[str, Any] = field(default_factory=dict)
    """Of the last minutes before now, or before the end."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """What happened last, batches apart."""
    stuck: list[dict[str, Any]] = field(default_factory=list)
    """Entries of calls of user code that have not come back, if the service runs."""
    live: dict[str, Any] | None = None
    """What the running service itself says, if it listens and the user has its token."""


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "status",
        help="whether a service runs on a location, and how it is",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("location", help="folder or URI of the state")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    from anabranch.durability.store import StateStore

    picture = look(StateStore(args.location).look(), time.time())
    if picture.is_running:
        picture.live = _live(args.location)
    if args.json:
        print(json.dumps(asdict(picture), default=_plain, indent=2))
    else:
        print("\n".join(_lines(picture)))
    return 0 if picture.is_running else EXIT_NOT_RUNNING


def look(store: StateStore, now: float) -> LocationPicture:
    """What a location says of its service."""
    from anabranch.durability.journal import JournalFolder

    folder = JournalFolder(store.blobs)
    begun = [name.started_ms / 1000 for name in folder.names()]
    journal = folder.read(since=begun[-1] - RECENT_SECONDS if begun else None)
    is_running, how = _life(store, journal, now)
    operators = {name: _operator(store, name) for name in store.operators()}
    rows = journal.rows()
    batches = [row for row in rows if row["kind"] == EntryKind.BATCH.value and "seconds" in row]
    end = now if is_running else (journal.alive_at or now)
    recent = [row for row in batches if end - row["time"].timestamp() <= RECENT_SECONDS]
    often = {kind.value for kind in FREQUENT}
    events = [row for row in rows if row["kind"] not in often][-EVENTS_SHOWN:]
    stuck = stuck_calls(rows) if is_running else []
    return LocationPicture(
        *(store.blobs.location, is_running, how, None if is_running else journal.alive_at),
        *(operators, _summary(recent), events, stuck),
    )


def _life(store: StateStore, journal: JournalContent, now: float) -> tuple[bool, str]:
    from anabranch.durability import names
    from anabranch.durability.locks import is_held

    if journal.alive_at is None:
        return False, "no service has written a journal here"
    who = f"process {journal.owner.get('pid')} on {journal.owner.get('host')}"
    last = datetime.fromtimestamp(journal.alive_at, timezone.utc)
    kinds = journal.entries["kind"].to_pylist()
    ends = [i for i, kind in enumerate(kinds) if kind == EntryKind.SERVICE_STOPPED.value]
    starts = [i for i, kind in enumerate(kinds) if kind == EntryKind.SERVICE_STARTED.value]
    if ends and (not starts or ends[-1] > starts[-1]):
        return False, f"stopped in order at {clock(last)} ({who})"
    is_here = journal.owner.get("host") == socket.gethostname()
    held = None
    if store.blobs.is_local and is_here:
        held = is_held(store.blobs.full_name(names.LOCK_FILE))
    if held is None:
        held = now - journal.alive_at <= SILENT_SECONDS_MAX
        if held:
            return True, f"running, heard of {now - journal.alive_at:.0f} s ago ({who})"
    if held:
        return True, f"running ({who}, since {journal.owner.get('since')})"
    return False, f"died at {clock(last)} or up to a minute later, without a word ({who})"


def _live(location: str) -> dict[str, Any] | None:
    """The location says enough if the service cannot be asked."""
    from anabranch.errors import AnabranchError
    from anabranch.http.client import ServiceClient

    try:
        found: dict[str, Any] = ServiceClient.of(location, LIVE_SECONDS_MAX).get("/status")
    except AnabranchError:
        return None
    return found


def _operator(store: StateStore, name: str) -> OperatorPicture:
    epochs = store.epochs(name)
    manifest = store.last(name)
    if manifest is None:
        return OperatorPicture(epochs[-1] if epochs else None, None, 0, len(epochs))
    size = sum(ref.bytes for ref in manifest.files)
    return OperatorPicture(manifest.epoch, manifest.committed_at / 1000, size, len(epochs))


def _summary(batches: list[dict[str, Any]]) -> dict[str, Any]:
    if not batches:
        return {}
    seconds = sorted(row["seconds"] for row in batches)
    return {
        "batches": len(batches),
        "rows": sum(row.get("rows", 0) for row in batches),
        "median_seconds": round(statistics.median(seconds), 4),
        "p99_seconds": round(seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))], 4),
        "max_seconds": round(seconds[-1], 4),
    }


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _lines(picture: LocationPicture) -> list[str]:
    lines = [f"{picture.location}: {picture.how}"]
    for name, operator in picture.operators.items():
        if operator.last_epoch is None:
            lines.append(f"  {name}: no batch yet")
            continue
        at = operator.committed_at
        when = "" if at is None else f" at {clock(datetime.fromtimestamp(at, timezone.utc))}"
        kept = f"{readable_size(operator.bytes)}, {operator.epochs_kept} batches can be restored"
        lines.append(f"  {name}: last batch {operator.last_epoch}{when}, {kept}")
    if found := picture.batches:
        lines.append(
            f"  last {RECENT_SECONDS / 60:.0f} minutes: {found['batches']} batches, "
            f"{found['rows']:,} rows, median {found['median_seconds']} s, "
            f"99 % below {found['p99_seconds']} s, longest {found['max_seconds']} s"
        )
    for row in picture.stuck:
        where = f"{row['worker']}: user code has not come back since {clock(begun(row))}"
        lines.append(f"  {where}: {about(row)}")
    lines += _live_lines(picture.live or {})
    return lines + [f"  {line(event)}" for event in picture.events]


def _live_lines(live: dict[str, Any]) -> list[str]:
    workers = live.get("workers", {})
    lines = [
        f"  {name}: {shown['status']} on {shown.get('host') or '?'}, {shown['key_groups']} key "
        f"groups, {readable_size(shown.get('bytes') or 0)}, {shown['restarts']} restarts"
        for name, shown in list(workers.items())[:WORKERS_SHOWN]
    ]
    if len(workers) > WORKERS_SHOWN:
        lines.append(f"  ... {len(workers)} workers (--json shows all)")
    if moving := live.get("reconfiguration"):
        lines.append(f"  moving: {moving['strategy']}, {moving['progress']:.0%}")
    return lines


def readable_size(count: float) -> str:
    """For people."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
