"""What somebody who is on call should know, in words, and what to do about it: pure functions.

A finding has a sentence and, where something helps, an action: a request that the API takes. Its
price is what a dry run says; the caller asks for it.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.model.journal_entry import EntryKind

BAD, WARNING, NOTE = "bad", "warning", "note"
"""How urgent: somebody must look now; soon; good to know."""

BUSY_SHARE = 0.5
"""A worker below this share of its time is not worth a word."""
SKEW_RATIO = 1.5
FULL_SHARE = 0.85
HOT_GROUPS_MAX = 3
HOT_SHARE = 0.3
SLOW_RATIO = 3.0
SLOW_SECONDS_MIN = 0.5
BATCHES_MIN = 10
SILENT_RATIO = 20.0
SILENT_SECONDS_MIN = 60.0
RECENT_SECONDS = 600.0
DEATHS_MANY = 3
PHASES = {
    "load_ms": "waiting for state that is elsewhere",
    "wait_ms": "waiting for the batch before to be applied",
    "apply_ms": "applying rows",
    "write_ms": "writing changelogs",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know."""

    kind: str
    severity: str
    text: str
    action: Mapping[str, Any] | None = None
    """A request as `POST /moves` takes it."""
    command: str | None = None
    """The same as a command, without the location."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What findings are made from."""

    now: float
    status: Mapping[str, Any]
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """As in `Utilisation.shares`."""
    groups: Sequence[Mapping[str, Any]] = ()
    """As in `service.key_groups()`."""
    entries: Sequence[Mapping[str, Any]] = ()
    """Recent entries of the journal, as rows with Unix times."""


def findings(picture: Picture) -> list[Finding]:
    """All that is worth a word, the most urgent first."""
    found = [
        *_workers(picture),
        *_failures(picture),
        *_silence(picture),
        *_load(picture),
        *_slow(picture),
        *_late(picture),
        *_lost(picture),
    ]
    order = (BAD, WARNING, NOTE)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _recent(picture: Picture, kind: EntryKind) -> list[Mapping[str, Any]]:
    return [
        entry
        for entry in picture.entries
        if entry["kind"] == kind.value and picture.now - entry["time"] <= RECENT_SECONDS
    ]


def _workers(picture: Picture) -> list[Finding]:
    found = []
    deaths = _recent(picture, EntryKind.WORKER_ENDED)
    last = {entry["worker"]: entry for entry in deaths if "worker" in entry}
    for worker, shown in picture.status["workers"].items():
        if shown["status"] == "up":
            continue
        why = last.get(worker, {}).get("text")
        reason = f". {_sentence(why)}" if why else "."
        text = f"{worker} is {shown['status']}, not in service{reason}"
        found.append(Finding("worker-down", BAD, f"{text} Batches that need it wait."))
    many = Counter(entry["worker"] for entry in deaths if "worker" in entry)
    for worker, times in many.items():
        why = last[worker].get("text")
        again = f"The last time: {_sentence(why)}" if why else ""
        if times >= DEATHS_MANY:
            text = f"{worker} has died {times} times in {_minutes(RECENT_SECONDS)}. {again}"
            found.append(Finding("worker-keeps-dying", BAD, text.strip()))
        elif picture.status["workers"].get(worker, {}).get("status") == "up":
            ago = _ago(picture.now - last[worker]["time"])
            text = f"{worker} died {ago} and was replaced. {_sentence(why or '')}"
            found.append(Finding("worker-died", NOTE, text.strip()))
    return found


def _failures(picture: Picture) -> list[Finding]:
    failed = _recent(picture, EntryKind.BATCH_FAILED)
    if not failed:
        return []
    last = failed[-1]
    epoch = last.get("epoch")
    committed = picture.status["operators"].get(last.get("operator"), {}).get("last_epoch")
    is_over = committed is not None and epoch is not None and committed >= epoch
    text = (
        f"Batch {epoch} of {last.get('operator')} failed {_ago(picture.now - last['time'])}: "
        f"{_sentence(last.get('text') or 'no reason is known')}"
    )
    text += " A later attempt succeeded." if is_over else ""
    return [Finding("batch-failed", NOTE if is_over else BAD, text)]


def _silence(picture: Picture) -> list[Finding]:
    """Of operators that had a steady rhythm and have lost it."""
    found = []
    for name, shown in picture.status["operators"].items():
        ends = [b["started"] + b["seconds"] for b in shown["batches"] if b["seconds"] is not None]
        if len(ends) < BATCHES_MIN:
            continue
        gaps = [later - earlier for earlier, later in itertools.pairwise(ends)]
        usual, silent = statistics.median(gaps), picture.now - ends[-1]
        if silent > max(SILENT_SECONDS_MIN, SILENT_RATIO * usual):
            running = next((b for b in shown["batches"][::-1] if b["seconds"] is None), None)
            what = "no batch has begun since" if running is None else "one batch is under way"
            text = (
                f"{name} committed its last batch {_ago(silent)}; before, one came every "
                f"{_seconds(usual)}. {what[0].upper()}{what[1:]}."
            )
            found.append(Finding("silent", WARNING, text))
    return found


def _load(picture: Picture) -> list[Finding]:
    busy = {worker: sum(shares.values()) for worker, shares in picture.shares.items()}
    if not busy or picture.status.get("reconfiguration"):
        return []
    worker, most = max(busy.items(), key=lambda each: each[1])
    others = [share for name, share in busy.items() if name != worker]
    if others and most >= BUSY_SHARE and most >= SKEW_RATIO * statistics.mean(others):
        text = f"{worker} is {_percent(most)} busy, the others {_percent(statistics.mean(others))}"
        hot = _hot(picture.groups, worker)
        text += f"; {hot}." if hot else "."
        return [Finding("skew", WARNING, text, {"kind": "rebalance"}, "rebalance")]
    if statistics.mean(busy.values()) >= FULL_SHARE:
        wanted = len(picture.status["workers"]) + max(1, len(busy) // 2)
        text = (
            f"All {len(busy)} workers are busy, {_percent(statistics.mean(busy.values()))} on "
            "average: more rows would queue."
            if len(busy) > 1
            else f"{worker}, the only worker, is {_percent(most)} busy: more rows would queue."
        )
        action = {"kind": "rescale", "workers": wanted}
        return [Finding("full", WARNING, text, action, f"rescale {wanted}")]
    return []


def _hot(groups: Sequence[Mapping[str, Any]], worker: str) -> str:
    """The few key groups of a worker that carry most of all rows, if there are such."""
    total = sum(group["rows"] for group in groups)
    own = sorted(
        (group for group in groups if group["owner"] == worker), key=lambda group: -group["rows"]
    )[:HOT_GROUPS_MAX]
    if not total or not own:
        return ""
    counts = [sum(group["rows"] for group in own[:n]) for n in range(1, len(own) + 1)]
    share = counts[-1] / total
    if share < HOT_SHARE:
        return ""
    enough = next(n for n, rows in enumerate(counts, 1) if rows >= 0.8 * counts[-1])
    names = [str(group["group"]) for group in own[:enough]]
    share = counts[enough - 1] / total
    one = len(names) == 1
    listed = names[0] if one else f"{', '.join(names[:-1])} and {names[-1]}"
    subject = f"key group {listed} carries" if one else f"key groups {listed} carry"
    return f"{subject} {_percent(share)} of the rows"


def _slow(picture: Picture) -> list[Finding]:
    found = []
    for name, shown in picture.status["operators"].items():
        ended = [batch for batch in shown["batches"] if batch["seconds"] is not None]
        if len(ended) < BATCHES_MIN:
            continue
        usual = statistics.median(batch["seconds"] for batch in ended)
        last = statistics.median(batch["seconds"] for batch in ended[-3:])
        if last < max(SLOW_SECONDS_MIN, SLOW_RATIO * usual):
            continue
        stats = ended[-1]["stats"]
        times = {phase: stats.get(phase, 0) for phase in PHASES}
        phase = max(times, key=lambda each: times[each])
        why = f", most of it {PHASES[phase]}" if times[phase] > 300 * last else ""
        text = f"Batches of {name} take {_seconds(last)}, usually {_seconds(usual)}{why}."
        found.append(Finding("slow", WARNING, text))
    return found


def _late(picture: Picture) -> list[Finding]:
    found = []
    for name, shown in picture.status["operators"].items():
        late = sum(batch["stats"].get("rows_dropped_late", 0) for batch in shown["batches"])
        rows = sum(batch["stats"].get("rows_input", 0) for batch in shown["batches"])
        if late and rows:
            text = (
                f"{name} dropped {late:,} rows behind the watermark in the last "
                f"{len(shown['batches'])} batches, {_percent(late / rows)} of its rows."
            )
            found.append(Finding("late-rows", NOTE, text))
    return found


def _lost(picture: Picture) -> list[Finding]:
    lost = sum(entry.get("rows", 0) for entry in _recent(picture, EntryKind.LOST))
    if not lost:
        return []
    text = f"The journal lost {lost:,} entries: the location takes too long, or is full."
    return [Finding("journal", WARNING, text)]


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    line = line if len(line) <= 240 else f"{line[:237]}..."
    line = f"{line[:1].upper()}{line[1:]}"
    return line if not line or line.endswith((".", "!", "?")) else f"{line}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes"


def _ago(seconds: float) -> str:
    if seconds < 90:
        return f"{round(seconds)} s ago" if seconds >= 0.5 else "just now"
    return f"{seconds / 60:.0f} min ago" if seconds < 5400 else f"{seconds / 3600:.1f} h ago"
