"""`anabranch history`: what happened to the services of a location; nothing needs to run."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from anabranch.cli.arguments import count, moment
from anabranch.model.journal_entry import EntryKind

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Print what happened to the services of a state location: batches, reconfigurations, deaths of
workers, errors, savepoints. It reads the journal in the location, whether a service runs or not.
"""
LINES = 200


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "history",
        help="what happened to the services of a location",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("location", help="folder or URI of the state")
    parser.add_argument("--since", type=moment, metavar="T", help="2h (ago), or 2026-05-01T03:00")
    parser.add_argument("--until", type=moment, metavar="T", help="the same")
    parser.add_argument(
        "--kind",
        action="append",
        choices=[kind.value for kind in EntryKind],
        metavar="KIND",
        help="only this kind; may be repeated: " + ", ".join(kind.value for kind in EntryKind),
    )
    parser.add_argument("--operator", metavar="NAME", help="only what is about this operator")
    parser.add_argument("--worker", metavar="NAME", help="only what is about this worker")
    parser.add_argument(
        "-n", type=count, default=LINES, metavar="N", help=f"the last N entries (default: {LINES})"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print entries."""
    from anabranch.durability.journal import JournalFolder
    from anabranch.durability.store import StateStore

    store = StateStore(args.location).look()
    content = JournalFolder(store.blobs).read(args.since, args.until)
    rows = [row for row in content.rows() if _is_wanted(row, args)]
    for row in rows[-args.n :]:
        print(as_json(row) if args.json else line(row))
    for what in content.damaged:
        print(f"left out: {what}", file=sys.stderr)
    if not rows and not args.json:
        print("nothing is written down" + (" that fits" if content.entries.num_rows else " yet"))
    elif len(rows) > args.n and not args.json:
        print(f"... the last {args.n} of {len(rows)} entries (-n N shows more)")
    return 0


def _is_wanted(row: dict[str, Any], args: argparse.Namespace) -> bool:
    return (
        (args.kind is None or row["kind"] in args.kind)
        and args.operator in (None, row.get("operator"))
        and args.worker in (None, row.get("worker"))
    )


def as_json(row: dict[str, Any]) -> str:
    """One line for programs."""
    return json.dumps({**row, "time": row["time"].isoformat()}, default=str)


def line(row: dict[str, Any]) -> str:
    """One line for people, in local time."""
    about = " ".join(filter(None, (row.get("worker"), row.get("operator"), _batch(row))))
    return f"{clock(row['time'])}  {row['kind']:<15}  {about}".rstrip()


def clock(at: datetime) -> str:
    """A moment as people here write it."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _batch(row: dict[str, Any]) -> str:
    if row["kind"] != EntryKind.BATCH.value:
        epoch = f"batch {row['epoch']}: " if "epoch" in row else ""
        return epoch + " ".join(row.get("text", "").split())
    parts = [f"batch {row['epoch']}"]
    if "seconds" in row:
        parts.append(f"{row['seconds']:.3f} s")
    if "rows" in row:
        parts.append(f"{row['rows']:,} rows")
    times = ((name, row.get(f"{name}_ms")) for name in ("load", "wait", "apply", "write"))
    parts += [f"{name} {ms} ms" for name, ms in times if ms]
    return ", ".join(parts)
