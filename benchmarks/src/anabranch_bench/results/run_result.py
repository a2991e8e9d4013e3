"""What one run showed: a query under load, with its moves, its outputs, its JSON form."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from anabranch.loadtest.latency import NOTHING, Latency, Timeline, TimeWindow
from anabranch_bench.probes.machine import CoreShares
from anabranch_bench.results.cases import Case
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.workloads.verify import Verification

PHASES = ("before", "during", "after")
STABLE_FACTOR = 1.1
"""Stable again: no batch above this times the peak before the move (DRRS' rule)."""
INTERRUPTED = "interrupted"
"""Instead of an error: somebody ended the run."""


class Controls(Enum):
    """What a run is compared with (see `comparison.RunSet.controls_of`)."""

    ALL = "all control runs of its part that last as long as its move"
    PAIRED = "the control run of the same repeat"
    BESIDE = "the times without a move just before and after it, in the same query"


@dataclass(frozen=True, slots=True)
class MeasuredMove:
    """A reconfiguration: when (seconds since the load began), and what it did."""

    window: TimeWindow
    report: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    """The report for people."""

    @property
    def name(self) -> str:
        """As in `2 -> 3 workers`."""
        before, after = (len(self.report[f"workers_{when}"]) for when in ("before", "after"))
        return f"{before} -> {after} workers"


@dataclass(frozen=True, slots=True)
class Replication:
    """What keeping replicas moved: at first, and under the load up to the reconfiguration."""

    copy_bytes: int
    steady_bytes: int
    seconds: float
    """Under load."""


@dataclass
class RunResult:
    """One run, as far as it came."""

    load: RunLoad
    case: Case
    repeat: int = 0
    part: str = ""
    """Of a benchmark; runs of different parts are not compared."""
    controls: Controls = Controls.ALL
    settle: float = 0.0
    """Seconds under load that do not count."""
    timeline: Timeline | None = None
    moves: list[MeasuredMove] = field(default_factory=list)
    rows: int = 0
    """Rows of the stream that were processed, those before the load included."""
    output_rows: int = 0
    capacity: float = math.nan
    """Rows a second of the last batches of the warm-up, back to back."""
    replication: Replication | None = None
    verifications: list[Verification] = field(default_factory=list)
    peers: int | None = None
    """Most connections between workers at a time before the move."""
    peer_samples: int = 0
    """How often they were counted."""
    cores: CoreShares = field(default_factory=CoreShares)
    """In a turn."""
    written_a_second: float = 0.0
    """Bytes that workers wrote before the move."""
    error: str = ""
    """Why it failed, or that it was interrupted."""

    @property
    def label(self) -> str:
        """Name in tables: the strategy with its options."""
        return self.case.label

    @property
    def is_turn(self) -> bool:
        """Whether it is a part of one long query (`runs/turns.py`), not a query of its own."""
        return self.controls is Controls.BESIDE

    @property
    def is_good(self) -> bool:
        """Whether its figures count."""
        return not self.error and self.timeline is not None and bool(self.timeline.batches)

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody ended it: its figures do not count, but it has not failed."""
        return self.error == INTERRUPTED

    @property
    def is_right(self) -> bool | None:
        """Whether all outputs are equal to the oracle's; None: not verified."""
        return all(v.is_right for v in self.verifications) if self.verifications else None

    @property
    def has_outputs(self) -> bool:
        """Whether every output had something to compare: two times nothing proves little."""
        return all(v.expected_rows for v in self.verifications)

    @property
    def end(self) -> float:
        """When its last batch was done, in seconds since the load began."""
        return self.timeline.end if self.timeline else 0.0

    @property
    def move(self) -> TimeWindow | None:
        """When its (first) move was."""
        return self.moves[0].window if self.moves else None

    @property
    def report(self) -> dict[str, Any]:
        """What its (first) move told."""
        return self.moves[0].report if self.moves else {}

    def phase(self, name: str, window: TimeWindow | None = None) -> Latency:
        """Latency before, during or after its move, or the window of another run's."""
        window = window or self.move
        if self.timeline is None or window is None:
            return NOTHING
        if name == "before":
            return self.timeline.before(TimeWindow(self.settle, min(window.start, self.end)))
        if name == "during":
            return self.timeline.during(TimeWindow(window.start, min(window.end, self.end)))
        return self.timeline.after(TimeWindow(window.end, self.end))

    def phases(self) -> list[tuple[str, Latency]]:
        """Before, during and after each of several moves; without one, over all."""
        timeline = self.timeline
        if timeline is None or not timeline.batches:
            return []
        if not self.moves:
            return [("all", timeline.after(TimeWindow(0.0, timeline.end)))]
        found, free = [], self.settle
        ends = [*(later.window.start for later in self.moves[1:]), timeline.end]
        for move, end in zip(self.moves, ends, strict=True):
            window, name = move.window, move.name
            found.append((f"before {name}", timeline.before(TimeWindow(free, window.start))))
            found.append((f"during {name}", timeline.during(window)))
            found.append((f"after {name}", timeline.after(TimeWindow(window.end, end))))
            free = window.end
        return found

    @property
    def stable_after(self) -> float:
        """Seconds from the move's start until latency was and stayed as before."""
        if self.timeline is None or self.move is None:
            return math.nan
        start, limit = self.move.start, STABLE_FACTOR * self.phase("before").peak
        points = self.timeline.points()
        late = [p.done for p in points if p.done >= start and p.slowest > limit]
        return max(late, default=start) - start

    def to_json(self) -> dict[str, Any]:
        """For machines; `stored_runs.runs_from_json` makes a run of it again."""
        return {
            "part": self.part,
            "workload": self.load.name,
            "about": self.load.about,
            "rate": self.load.rate,
            "keys": self.load.keys,
            "payload_bytes": self.load.payload_bytes,
            "strategy": self.label,
            "repeat": self.repeat,
            "is_turn": self.is_turn,
            "controls": self.controls.name,
            "settle": self.settle,
            "error": self.error or None,
            "rows": self.rows,
            "output_rows": self.output_rows,
            "warm_up_rows_per_second": self.capacity if math.isfinite(self.capacity) else None,
            "move_window": asdict(self.move) if self.move else None,
            "stable_after": self.stable_after if self.move else None,
            "latency": {name: self.phase(name).to_json() for name in PHASES} if self.move else None,
            "report": self.report,
            "replication": asdict(self.replication) if self.replication else None,
            "verdicts": [v.to_json() for v in self.verifications],
            "peer_connections": self.peers,
            "peer_samples": self.peer_samples,
            "cores": asdict(self.cores) if str(self.cores) else None,
            "written_per_second": self.written_a_second,
            "timeline": self.timeline.to_json() if self.timeline else None,
        }


def brief(error: BaseException) -> str:
    """An error in a line: its first one, and the cause if a traceback is in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    causes = [line for line in lines[1:] if re.match(r"[\w.]*(Error|Exception): ", line)]
    return " ... ".join(line[:300] for line in dict.fromkeys([lines[0], *causes[-1:]]))
