"""From what a user asks for to owners and workers: rescale, move, drain, rebalance."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.migration.assignment import assign, by_load, minimal
from anabranch.migration.plan import GroupMove, moves_between
from anabranch.migration.steps import (
    AddCount,
    CatchUp,
    Clean,
    CloseGate,
    Connect,
    Copy,
    Flip,
    Import,
    Lag,
    LoadAll,
    NextEpoch,
    OpenGate,
    Outcome,
    Quiet,
    Restart,
    SaveAll,
    Shadow,
    Step,
    Steps,
    Together,
)
from anabranch.migration.strategies import steps_of
from anabranch.model.ids import WorkerId
from anabranch.protocol.exhaustive import unhandled

COPY_BYTES_PER_SECOND = 200 << 20
"""What a move of memory between two processes reaches at least; for estimates only."""

Owners = tuple[WorkerId, ...]


@dataclass(frozen=True, slots=True)
class TargetLayout:
    """Owners and workers to be reached."""

    owners: Owners
    workers: tuple[WorkerId, ...]
    drained: frozenset[WorkerId] = frozenset()
    """Workers that leave by name: one that is added meanwhile does not get the name."""
    has_choices: bool = False
    """Whether key groups were given to workers by name or by load, not only by their number."""

    @property
    def owning(self) -> tuple[WorkerId, ...]:
        """Workers with key groups; not those that only hold replicas for a standby."""
        return tuple(worker for worker in self.workers if worker in self.owners)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a reconfiguration would do; the answer to `dry_run=True`."""

    strategy: str
    moves: tuple[GroupMove, ...]
    workers_before: tuple[WorkerId, ...]
    workers_after: tuple[WorkerId, ...]
    bytes: int
    """Of state in memory, about; a report counts what was sent, which may be less."""
    seconds: float
    """Estimate: the bytes at the rate that the strategy begins with, and batches it waits for."""

    def __str__(self) -> str:
        pairs: dict[tuple[str, str], int] = {}
        for move in self.moves:
            pair = (move.source, move.target)
            pairs[pair] = pairs.get(pair, 0) + 1
        lines = [
            f"{self.strategy}: {len(self.workers_before)} -> {len(self.workers_after)} workers, "
            f"{len(self.moves)} key groups, {self.bytes / 2**20:,.1f} MiB in memory, "
            f"about {self.seconds:.1f} s (nothing was done)"
        ]
        lines += [
            f"  {source} -> {target}: {n} key groups" for (source, target), n in pairs.items()
        ]
        return "\n".join(lines)


def forecast(
    strategy: str,
    before: TargetLayout,
    after: TargetLayout,
    bytes_of: Mapping[int, int],
    bytes_per_second: int,
    options: Mapping[str, Any] | None = None,
    batch_seconds: float = 0.0,
) -> Forecast:
    """Moves, bytes and an estimate of the duration; batches come every `batch_seconds`."""
    moves = moves_between(before.owners, after.owners)
    if strategy == "stop-restart" and moves:
        size = sum(bytes_of.values())  # all workers save what they have and load it again
    else:
        size = sum(bytes_of.get(move.group, 0) for move in moves)
    rate = min(bytes_per_second, COPY_BYTES_PER_SECOND)
    waits = _waits(steps_of(strategy, moves, options or {}), bytes_of) if moves else 0
    seconds = size / rate + waits * batch_seconds
    return Forecast(strategy, moves, before.owning, after.workers, size, seconds)


def _waits(steps: Steps, bytes_of: Mapping[int, int]) -> int:
    """How many batches a strategy waits for, one after the other, if all goes well."""
    count = 0
    outcome: Outcome | None = None
    while True:
        try:
            wanted: Step = steps.send(outcome)
        except StopIteration:
            return count
        copied = 0
        match wanted:
            case NextEpoch():
                count += 1
            case Copy() | Import():
                copied = sum(bytes_of.get(move.group, 0) for move in wanted.moves)
            case Together():
                ends = [0] * wanted.limit  # a part begins when the first of those before ends
                for part in wanted.parts:
                    heapq.heapreplace(ends, ends[0] + _waits(part, bytes_of))
                count += max(ends)
            case Connect() | CatchUp() | Flip() | Clean() | Shadow() | Lag() | AddCount():
                pass
            case CloseGate() | Quiet() | SaveAll() | Restart() | LoadAll() | OpenGate():
                pass
            case _:
                unhandled(wanted)
        outcome = Outcome({"bytes": copied})


def _basis(start: TargetLayout, present: Owners) -> Owners:
    """What a plan goes on from: where nobody has chosen owners, those that there are will do."""
    return start.owners if start.has_choices else present


def rescaled(start: TargetLayout, present: Owners, count: Any, assignment: str) -> TargetLayout:
    """As many workers as asked for: the newest go first, free names are used again."""
    if not _is_whole(count) or count < 1:
        raise InvalidArgument(f"workers must be a whole number of at least 1, got {count!r}.")
    count = int(count)
    if count > len(start.owners):
        raise InvalidArgument(
            f"{count} workers cannot share {len(start.owners)} key groups. Ask for fewer workers; "
            "the number of key groups is fixed once there is state."
        )
    kept = sorted(start.workers, key=_number)[:count]
    number = 0
    while len(kept) < count:
        number += 1
        name = WorkerId(f"w{number}")
        if name not in kept and name not in start.drained:
            kept.append(name)
    workers = tuple(sorted(kept, key=_number))
    owners = assign(_basis(start, present), workers, assignment, present)
    return replace(start, owners=owners, workers=workers)


def moved(start: TargetLayout, groups: Any, to: Any) -> TargetLayout:
    """Some key groups to a worker."""
    target = _known(to, start.workers)
    result = list(start.owners)
    try:
        wanted = list(groups)
    except TypeError:
        raise InvalidArgument(f"key groups must be a list of numbers, got {groups!r}.") from None
    for group in wanted:
        if not _is_whole(group) or not 0 <= group < len(result):
            raise InvalidArgument(
                f"{group!r} is not a key group; they are numbered 0 to {len(result) - 1}."
            )
        result[group] = target
    return replace(start, owners=tuple(result), has_choices=True)


def drained(start: TargetLayout, present: Owners, worker: Any) -> TargetLayout:
    """Everything off one worker, which then ends."""
    leaving = _known(worker, start.workers)
    rest = tuple(sorted((w for w in start.workers if w != leaving), key=_number))
    if not rest:
        raise InvalidArgument(
            f"{leaving} is the only worker: nobody could take its key groups. Rescale first."
        )
    owners = minimal(_basis(start, present), rest, present)
    return replace(start, owners=owners, workers=rest, drained=start.drained | {leaving})


def rebalanced(start: TargetLayout, load: Mapping[int, float]) -> TargetLayout:
    """Key groups shared out by measured load."""
    owners = by_load(start.owners, start.workers, load)
    return replace(start, owners=owners, has_choices=True)


def _is_whole(value: Any) -> bool:
    """A whole number, also one of NumPy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _known(worker: Any, workers: Sequence[WorkerId]) -> WorkerId:
    if worker not in workers:
        raise InvalidArgument(f"There is no worker {worker!r}; there are {', '.join(workers)}.")
    return WorkerId(worker)


def _number(worker: WorkerId) -> int:
    return int(worker[1:])
