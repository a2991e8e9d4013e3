"""Which worker should own which key group: with minimal movement, by ranges, or by load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId, WorkerId
from anabranch.model.routing import initial_routing

ASSIGNMENTS = ("minimal", "range")

Owners = tuple[WorkerId, ...]

Places = Mapping[WorkerId, HostId]
"""Hosts of workers, those that there are and those that come."""

NOWHERE: Places = MappingProxyType({})


def assign(
    owners: Owners,
    workers: Sequence[WorkerId],
    kind: str = "minimal",
    present: Owners | None = None,
    places: Places = NOWHERE,
) -> Owners:
    """Owners after a change of the set of workers; the key groups are shared out evenly."""
    if kind == "minimal":
        return minimal(owners, workers, present, places)
    if kind == "range":
        return by_range(len(owners), workers)
    raise InvalidArgument(f"assignment must be one of {', '.join(ASSIGNMENTS)}, not {kind!r}.")


def minimal(
    owners: Owners,
    workers: Sequence[WorkerId],
    present: Owners | None = None,
    places: Places = NOWHERE,
) -> Owners:
    """Move a key group only if its owner leaves or has more than its share.

    Shares differ by one at most; the larger ones go to those that have most already. Where `owners`
    are not reached yet, key groups stay where they are at `present`, if they can. Those that move
    stay on their host, if they can. Beyond that, each is left with or given to the worker that it
    would have if there were just these from the start (its home): a lane then meets few owners.
    """
    if len(set(places.values())) < 2:
        places = NOWHERE  # one host: nothing can leave it
    here, home = present or owners, initial_routing(len(owners), workers).owners
    room = _shares(owners, workers)
    needy = {worker for worker in workers if owners.count(worker) < room[worker]}
    settled = [owner if owner == at else None for owner, at in zip(owners, here, strict=True)]
    preferences: list[Sequence[WorkerId | None]] = [
        [owner if owner == at else None for owner, at in zip(settled, home, strict=True)],
        # Others are for those whose home they are, if these are to get some.
        [owner if at not in needy else None for owner, at in zip(settled, home, strict=True)],
        # Best for one on the same host.
        [
            owner if owner is not None and not _is_same(at, owner, places) else None
            for owner, at in zip(settled, home, strict=True)
        ],
        settled,
        owners,
        here,
        [at if _is_same(at, owner, places) else None for owner, at in zip(here, home, strict=True)],
    ]
    result: list[WorkerId | None] = [None] * len(owners)
    for wanted in preferences:
        _settle(result, wanted, room)
    _settle_on_host(result, here, room, places)
    _settle(result, home, room)
    filled = iter(_in_turn(room))
    return tuple(owner if owner is not None else next(filled) for owner in result)


def _settle(
    result: list[WorkerId | None], wanted: Sequence[WorkerId | None], room: dict[WorkerId, int]
) -> None:
    """Give key groups without an owner those that they want, as far as these have room."""
    for group, worker in enumerate(wanted):
        if result[group] is None and worker is not None and room.get(worker, 0):
            room[worker] -= 1
            result[group] = worker


def _settle_on_host(
    result: list[WorkerId | None], here: Owners, room: dict[WorkerId, int], places: Places
) -> None:
    """Give key groups without an owner to those on their host that have most room."""
    beside: dict[HostId | None, list[WorkerId]] = {}
    for worker in room:
        if worker in places:
            beside.setdefault(places[worker], []).append(worker)
    for group, owner in enumerate(here):
        if result[group] is None:
            open_ones = (worker for worker in beside.get(places.get(owner), ()) if room[worker])
            target = max(open_ones, key=lambda worker: room[worker], default=None)
            if target is not None:
                room[target] -= 1
                result[group] = target


def _is_same(worker: WorkerId, other: WorkerId, places: Places) -> bool:
    """Whether two workers are known to be on one host."""
    place = places.get(worker)
    return place is not None and place == places.get(other)


def _shares(owners: Owners, workers: Sequence[WorkerId]) -> dict[WorkerId, int]:
    """How many key groups each worker should have."""
    small, extra = divmod(len(owners), len(workers))
    order = sorted(workers, key=lambda worker: -owners.count(worker))
    return {worker: small + (n < extra) for n, worker in enumerate(order)}


def by_range(groups: int, workers: Sequence[WorkerId]) -> Owners:
    """Contiguous ranges, as Flink assigns them: most key groups move when the number changes."""
    return tuple(workers[group * len(workers) // groups] for group in range(groups))


def by_load(
    owners: Owners,
    workers: Sequence[WorkerId],
    load: Mapping[int, float],
    tolerance: float = 0.05,
    places: Places = NOWHERE,
) -> Owners:
    """Move key groups off workers with more load than the mean until none exceeds it by much.

    Each step moves, from the worker with most load to the one with least, the key group that brings
    both closest to each other; a step that brings no gain is the last. A worker on the same host
    with less than the mean is as good as the one with least.
    """
    result = list(owners)
    total = dict.fromkeys(workers, 0.0)
    for group, owner in enumerate(result):
        total[owner] += load.get(group, 0.0)
    mean = sum(total.values()) / len(workers)
    for _ in range(len(owners)):
        heavy = max(workers, key=lambda worker: total[worker])
        if total[heavy] <= mean * (1 + tolerance):
            break
        own = {g: load[g] for g, o in enumerate(result) if o == heavy and load.get(g, 0.0) > 0}
        beside = (w for w in workers if _is_same(w, heavy, places) and total[w] < mean)
        light = min(workers, key=lambda worker: total[worker])
        target = min(beside, key=lambda worker: total[worker], default=light)
        best = _best(own, total[heavy] - total[target])
        if best is None:
            target, best = light, _best(own, total[heavy] - total[light])
        if best is None:
            break  # one key group that is heavier than the gap would only change places
        result[best] = target
        total[heavy] -= load[best]
        total[target] += load[best]
    return tuple(result)


def _best(own: Mapping[int, float], gap: float) -> int | None:
    """The key group that brings two workers closest to each other; None: none does."""
    best = min(own, key=lambda group: abs(gap - 2 * own[group]), default=None)
    return None if best is None or abs(gap - 2 * own[best]) >= gap else best


def _in_turn(room: Mapping[WorkerId, int]) -> list[WorkerId]:
    """Workers with room, dealt round robin."""
    left = {worker: count for worker, count in room.items() if count}
    dealt: list[WorkerId] = []
    while left:
        for worker in list(left):
            dealt.append(worker)
            left[worker] -= 1
            if not left[worker]:
                del left[worker]
    return dealt
