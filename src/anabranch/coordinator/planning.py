"""From what a user asks for to owners and workers: rescale, move, drain, rebalance."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.migration.assignment import NOWHERE, assign, by_load, minimal
from anabranch.migration.plan import GroupMove, moves_between
from anabranch.migration.steps import (
    AddCount,
    AskIdle,
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
from anabranch.migration.strategies import STANDBY, steps_of
from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.host_layout import HERE, HostsNow, are_apart, lay_out

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
    hosts: Mapping[WorkerId, HostId] = field(default_factory=dict)
    """Where new workers are to be, if there is more than one host."""
    drained_hosts: frozenset[HostId] = frozenset()
    """Hosts that take no workers from now on."""
    lack: str = ""
    """Why the hosts cannot hold so many workers; empty: they can."""
    placed: Mapping[str, str] = field(default_factory=dict)
    """Sites, and where users have placed them (`coordinator/seating.py`)."""

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
    bytes_across_hosts: int = 0
    """Those of the bytes that leave their host."""
    hosts: Mapping[WorkerId, HostId] = field(default_factory=dict)
    """Where workers would be, as far as that is known now."""
    lack: str = ""
    """Why this is not possible, and what would be; empty: it is."""

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
        if self.bytes_across_hosts:
            lines.append(f"  {self.bytes_across_hosts / 2**20:,.1f} MiB leave their host")
        if self.lack:
            lines.append(f"  not possible now: {self.lack}")
        return "\n".join(lines)


def forecast(
    strategy: str,
    before: TargetLayout,
    after: TargetLayout,
    bytes_of: Mapping[int, int],
    bytes_per_second: int,
    options: Mapping[str, Any] | None = None,
    batch_seconds: float = 0.0,
    places: Mapping[WorkerId, HostId] = NOWHERE,
) -> Forecast:
    """Moves, bytes and an estimate of the duration; batches come every `batch_seconds`.

    `places` are hosts of workers as they are now.
    """
    moves = moves_between(before.owners, after.owners)
    if strategy == "stop-restart" and moves:
        size = sum(bytes_of.values())  # all workers save what they have and load it again
    else:
        size = sum(bytes_of.get(move.group, 0) for move in moves)
    rate = min(bytes_per_second, COPY_BYTES_PER_SECOND)
    is_short = moves and strategy != STANDBY  # whose steps have no end
    waits = _waits(steps_of(strategy, moves, options or {}), bytes_of) if is_short else 0
    seconds = size / rate + waits * batch_seconds
    hosts = {**places, **after.hosts}
    across = sum(
        bytes_of.get(move.group, 0)
        for move in moves
        if are_apart(hosts.get(move.source), hosts.get(move.target))
    )
    there = {worker: hosts[worker] for worker in after.workers if worker in hosts}
    return Forecast(
        strategy, moves, before.owning, after.workers, size, seconds, across, there, after.lack
    )


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
            case AskIdle():
                pass
            case CloseGate() | Quiet() | SaveAll() | Restart() | LoadAll() | OpenGate():
                pass
            case _:
                unhandled(wanted)
        outcome = Outcome({"bytes": copied})


def _basis(start: TargetLayout, present: Owners) -> Owners:
    """What a plan starts from: where nobody has chosen owners, those that there are will do."""
    return start.owners if start.has_choices else present


def rescaled(
    start: TargetLayout,
    present: Owners,
    count: Any,
    assignment: str,
    now: HostsNow = HERE,
    hosts: Any = None,
) -> TargetLayout:
    """As many workers as asked for: the newest of the fullest hosts go first.

    With `hosts`, the workers are spread over these, and all other hosts are drained.
    """
    if not _is_whole(count) or count < 1:
        raise InvalidArgument(f"workers must be a whole number of at least 1, got {count!r}.")
    count = int(count)
    if count > len(start.owners):
        raise InvalidArgument(
            f"{count} workers cannot share {len(start.owners)} key groups. Ask for fewer workers; "
            "the number of key groups is fixed once there is state."
        )
    after = now.as_drained(start.drained_hosts) if hosts is None else now.only(hosts)
    staff = _staff(start, count, after, is_even=hosts is not None)
    owners = assign(_basis(start, present), staff.workers, assignment, present, staff.places)
    lack = ""
    if staff.lacking:
        possible = f"ask for {after.room} or fewer" if after.room else "let a host join"
        lack = f"{count} workers do not fit: {after.describe_room()}. Or {possible}."
    return _laid_out(start, owners, staff, after, lack)


@dataclass(frozen=True, slots=True)
class _Staff:
    """Workers that there are to be, with names."""

    workers: tuple[WorkerId, ...]
    places: Mapping[WorkerId, HostId]
    """Hosts of all workers, also of those that leave."""
    added: Mapping[WorkerId, HostId | None]
    """Those that come, in the order in which others leave."""
    lacking: int
    """For how many no host has room."""


def _staff(start: TargetLayout, count: int, now: HostsNow, is_even: bool = False) -> _Staff:
    """So many workers on the hosts that take workers; free names are used again."""
    there = sorted(start.workers, key=_number)
    spare = sorted({*now.at}.difference(there, start.drained), key=_number)
    layout = lay_out(there, spare, count, now, is_even)
    added: dict[WorkerId, HostId | None] = {}
    for host in layout.added:
        taken = {*there, *added, *start.drained, *now.at}
        stays = (worker for worker in spare if now.at[worker] == host and worker not in added)
        fresh = (WorkerId(f"w{number}") for number in itertools.count(1))
        free = (worker for worker in fresh if worker not in taken)
        added[next(stays, None) or next(free)] = host
    wishes = {w: h for w, h in (*layout.kept.items(), *added.items()) if h is not None}
    workers = tuple(sorted((*layout.kept, *added), key=_number))
    return _Staff(workers, {**now.at, **wishes}, added, layout.lacking)


def _laid_out(
    start: TargetLayout, owners: Owners, staff: _Staff, now: HostsNow, lack: str = ""
) -> TargetLayout:
    wishes = {w: staff.places[w] for w in staff.workers if w in staff.places and w not in now.at}
    return replace(
        start,
        owners=owners,
        workers=staff.workers,
        hosts=wishes if len(now.hosts) > 1 else {},
        drained_hosts=now.drained,
        lack=lack,
    )


def _relieved(start: TargetLayout, owners: Owners, staff: _Staff) -> Owners:
    """Owners once each worker that comes has taken all that one of those that leave has."""
    leaving = [w for w in sorted(start.workers, key=_number) if w not in staff.workers]
    heirs = dict(zip(leaving, staff.added, strict=False))
    return tuple(heirs.get(owner, owner) for owner in owners)


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


def drained(
    start: TargetLayout, present: Owners, worker: Any, now: HostsNow = HERE
) -> TargetLayout:
    """Everything off one worker, which then ends."""
    leaving = _known(worker, start.workers)
    rest = tuple(sorted((w for w in start.workers if w != leaving), key=_number))
    if not rest:
        raise InvalidArgument(
            f"{leaving} is the only worker: nobody could take its key groups. Rescale first."
        )
    owners = minimal(_basis(start, present), rest, present, {**now.at, **start.hosts})
    return replace(start, owners=owners, workers=rest, drained=start.drained | {leaving})


def host_drained(start: TargetLayout, present: Owners, host: Any, now: HostsNow) -> TargetLayout:
    """Everything off one host. As many workers start on others as these have room for."""
    leaving = now.known(host)
    after = now.as_drained(start.drained_hosts).without(leaving)
    staff = _staff(start, len(start.workers), after)
    if staff.lacking:
        staff = _staff(start, len(start.workers) - staff.lacking, after)
    if not staff.workers:
        raise InvalidArgument(
            f"{leaving} cannot be drained: {after.describe_room()}. Let another host join."
        )
    owners = _relieved(start, _basis(start, present), staff)
    if len(staff.workers) < len(start.workers):
        owners = minimal(owners, staff.workers, present, staff.places)
    return _laid_out(start, owners, staff, after)


def rebalanced(
    start: TargetLayout, load: Mapping[int, float], now: HostsNow = HERE
) -> TargetLayout:
    """Workers spread over the hosts, and key groups shared out by measured load."""
    after = now.as_drained(start.drained_hosts)
    staff = _staff(start, len(start.workers), after, is_even=True)
    owners = _relieved(start, start.owners, staff)
    owners = by_load(owners, staff.workers, load, places=staff.places)
    return replace(_laid_out(start, owners, staff, after), has_choices=True)


def _is_whole(value: Any) -> bool:
    """A whole number, also one of NumPy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _known(worker: Any, workers: Sequence[WorkerId]) -> WorkerId:
    if worker not in workers:
        raise InvalidArgument(f"There is no worker {worker!r}; there are {', '.join(workers)}.")
    return WorkerId(worker)


def _number(worker: WorkerId) -> int:
    return int(worker[1:])
