"""The journal of a large service that never was: an hour, 200 workers, 10,000 key groups."""

from __future__ import annotations

import random
from pathlib import Path

from anabranch.durability.blobs import BlobStore
from anabranch.durability.journal import JournalFolder, Segment, SegmentName, table_of
from anabranch.durability.store import StateStore
from anabranch.model.ids import WorkerId
from anabranch.model.journal_entry import EntryKind, JournalEntry
from anabranch.model.ownership import changes, whole
from anabranch.model.routing import Routing, initial_routing

GROUPS, WORKERS = 10_000, 200
HOUR = 3600
STARTED = 1_790_000_000.0
BATCH_SECONDS, LOAD_SECONDS = 0.5, 15.0
MOVES, MOVE_STEPS = 6, 40
ENTRIES_OF_SEGMENT = 2000


def write(folder: Path) -> None:
    """Write a location with it."""
    with StateStore(str(folder)):
        pass
    entries = sorted([*_batches(), *_loads(), *_moves()], key=lambda entry: entry.time)
    journal = JournalFolder(BlobStore(str(folder)))
    for number, first in enumerate(range(0, len(entries), ENTRIES_OF_SEGMENT)):
        some = entries[first : first + ENTRIES_OF_SEGMENT]
        name = SegmentName(round(1000 * some[0].time), "0000abcd", number)
        owner = {"pid": 1, "host": "nowhere", "since": "then"}
        journal.write(name, Segment(table_of(some), some[-1].time, owner))


def _batches() -> list[JournalEntry]:
    draw = random.Random(1)
    found = []
    for epoch in range(round(HOUR / BATCH_SECONDS)):
        apply_ms, write_ms = draw.randint(40, 160), draw.randint(10, 60)
        found.append(
            JournalEntry(
                EntryKind.BATCH,
                STARTED + epoch * BATCH_SECONDS + 0.4,
                "totals",
                epoch=epoch,
                seconds=(apply_ms + write_ms + draw.randint(20, 90)) / 1000,
                rows=draw.randint(400_000, 600_000),
                bytes=0,
                load_ms=0 if epoch % 200 else 300,
                wait_ms=0,
                apply_ms=apply_ms,
                write_ms=write_ms,
            )
        )
    return found


def _loads() -> list[JournalEntry]:
    found = []
    for number in range(round(HOUR / LOAD_SECONDS)):
        time = STARTED + number * LOAD_SECONDS
        details = {
            f"w{worker}": {
                "resident_bytes": 2 << 30,
                "operators": {
                    "totals": {
                        "rows": 1_000_000,
                        "bytes": 100_000_000,
                        "busy_seconds": {
                            "applying": round((0.2 + worker % 7 / 10) * number * LOAD_SECONDS, 3),
                            "fetching": 0.0,
                            "writing": round(0.1 * number * LOAD_SECONDS, 3),
                            "sending": 0.0,
                        },
                    }
                },
            }
            for worker in range(1, WORKERS + 1)
        }
        found.append(JournalEntry(EntryKind.LOAD, time, details=details))
    return found


def _moves() -> list[JournalEntry]:
    """Between 150 and 200 workers and back, in steps."""
    few = tuple(WorkerId(f"w{number}") for number in range(1, WORKERS * 3 // 4 + 1))
    many = tuple(WorkerId(f"w{number}") for number in range(1, WORKERS + 1))
    now = initial_routing(GROUPS, many)
    found = [
        JournalEntry(EntryKind.SERVICE_STARTED, STARTED, text="large"),
        JournalEntry(EntryKind.OWNERSHIP, STARTED, details=whole(now)),
    ]
    for number in range(MOVES):
        before, after = (many, few) if number % 2 == 0 else (few, many)
        wanted = initial_routing(GROUPS, after)
        time = STARTED + (number + 0.5) * HOUR / MOVES
        about = {
            "number": number + 1,
            "cause": "autoscaler",
            "strategy": "live",
            "workers_before": list(before),
            "workers_after": list(after),
        }
        found.append(JournalEntry(EntryKind.MOVE_STARTED, time, details=about))
        for step in range(1, MOVE_STEPS + 1):
            reached = GROUPS * step // MOVE_STEPS
            owners = wanted.owners[:reached] + now.owners[reached:]
            then = Routing(now.version + 1, owners)
            at = time + step
            found.append(JournalEntry(EntryKind.OWNERSHIP, at, details=changes(now, then)))
            now = then
        ended = {**about, "outcome": "done", "groups": GROUPS // 4, "pause_seconds": 0.3}
        found.append(
            JournalEntry(
                EntryKind.MOVE_ENDED, time + MOVE_STEPS + 1, seconds=41.0, bytes=5, details=ended
            )
        )
    return found
