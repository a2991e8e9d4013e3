"""Subscales side by side, rows re-routed, ready rows before waiting ones: DRRS."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove, by_pair
from anabranch.migration.steps import (
    AddCount,
    Arrival,
    Flip,
    Import,
    ImportPriority,
    NextEpoch,
    Steps,
    Together,
)


def drrs(moves: tuple[GroupMove, ...], *, concurrency: int = 2, subscale: int = 7) -> Steps:
    """Divide the moves of each pair of workers into subscales; run a few of them at a time.

    The published planner takes half of a pair's mean number of key groups, at least 7, which is
    what it comes to in the published runs (8 to 12 workers, 128 key groups). A micro-batch waits
    for all subscales that it meets, so here it is always 7 unless told otherwise. Subscales begin
    one by one, each with a new batch, as the planner starts one a second.

    The trigger and the confirmation of the published system are decoupled here by construction:
    lanes switch when they begin their next batch, each on its own, while the target asks for state
    at once and rows that still reach the source are re-routed.
    """
    pairs = by_pair(moves)
    subscales = [
        some[n : n + subscale] for some in pairs.values() for n in range(0, len(some), subscale)
    ]
    limit = concurrency * max(1, len({m.target for m in moves}))
    parts = (_subscale(some, min(n + 1, limit)) for n, some in enumerate(_alternating(subscales)))
    yield Together(tuple(parts), limit)


def _subscale(moves: tuple[GroupMove, ...], batches_before: int) -> Steps:
    for _ in range(batches_before):
        yield NextEpoch()
    yield AddCount("subscales")
    yield Flip(moves, Arrival.GROUP, ready_first=True)
    yield Import(moves, ImportPriority.WAITING)


def _alternating(subscales: list[tuple[GroupMove, ...]]) -> list[tuple[GroupMove, ...]]:
    """Subscales of different pairs in turn, so that those that run together share few workers."""
    queues: dict[object, list[tuple[GroupMove, ...]]] = {}
    for subscale in subscales:
        queues.setdefault((subscale[0].source, subscale[0].target), []).append(subscale)
    result: list[tuple[GroupMove, ...]] = []
    while queues:
        for pair in list(queues):
            result.append(queues[pair].pop(0))
            if not queues[pair]:
                del queues[pair]
    return result
