"""Which worker should own which key group: with minimal movement, by ranges, or by load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import InvalidArgument
from anabranch.model.ids import WorkerId
from anabranch.model.routing import initial_routing

ASSIGNMENTS = ("minimal", "range")

Owners = tuple[WorkerId, ...]


def assign(
    owners: Owners,
    workers: Sequence[WorkerId],
    kind: str = "minimal",
    present: Owners | None = None,
) -> Owners:
    """Owners after a change of the set of workers; the key groups are shared out evenly."""
    if kind == "minimal":
        return minimal(owners, workers, present)
    if kind == "range":
        return by_range(len(owners), workers)
    raise InvalidArgument(f"assignment must be one of {', '.join(ASSIGNMENTS)}, not {kind!r}.")


def minimal(owners: Owners, workers: Sequence[WorkerId], present: Owners | None = None) -> Owners:
    """Move a key group only if its owner leaves or has more than its share.

    Shares differ by one at most; the larger ones go to those that have most already. Where `owners`
    are not reached yet, key groups stay where they are at `present`, if they can. Beyond that, each
    is left with or given to the worker that it would have if there were just these from the start
    (its home): a lane then meets few owners.
    """
    here, home = present or owners, initial_routing(len(owners), workers).owners
    room = _shares(owners, workers)
    needy = {worker for worker in workers if owners.count(worker) < room[worker]}
    settled = [owner if owner == at else None for owner, at in zip(owners, here, strict=True)]
    preferences: list[Sequence[WorkerId | None]] = [
        [owner if owner == at else None for owner, at in zip(settled, home, strict=True)],
        # Others are for those whose home they are, if these are to get some.
        [owner if at not in needy else None for owner, at in zip(settled, home, strict=True)],
        settled,
        owners,
        here,
        home,
    ]
    result: list[WorkerId | None] = [None] * len(owners)
    for wanted in preferences:
        for group, worker in enumerate(wanted):
            if result[group] is None and worker is not None and room.get(worker, 0):
                room[worker] -= 1
                result[group] = worker
    filled = iter(_in_turn(room))
    return tuple(owner if owner is not None else next(filled) for owner in result)


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
) -> Owners:
    """Move key groups off workers with more load than the mean until none exceeds it by much.

    Each step moves, from the worker with most load to the one with least, the key group that brings
    both closest to each other; a step that brings no gain is the last.
    """
    result = list(owners)
    total = dict.fromkeys(workers, 0.0)
    for group, owner in enumerate(result):
        total[owner] += load.get(group, 0.0)
    mean = sum(total.values()) / len(workers)
    for _ in range(len(owners)):
        heavy = max(workers, key=lambda worker: total[worker])
        light = min(workers, key=lambda worker: total[worker])
        gap = total[heavy] - total[light]
        if total[heavy] <= mean * (1 + tolerance) or gap <= 0:
            break
        own = [g for g, owner in enumerate(result) if owner == heavy and load.get(g, 0.0) > 0]
        best = min(own, key=lambda g: abs(gap - 2 * load[g]), default=None)
        if best is None or abs(gap - 2 * load[best]) >= gap:
            break  # one key group that is heavier than the gap would only change places
        result[best] = light
        total[heavy] -= load[best]
        total[light] += load[best]
    return tuple(result)


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
