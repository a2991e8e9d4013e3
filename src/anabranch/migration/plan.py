"""A reconfiguration as data: which key group goes from where to where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.model.ids import KeyGroup, WorkerId


@dataclass(frozen=True, slots=True)
class GroupMove:
    """One key group changes its owner."""

    group: KeyGroup
    source: WorkerId
    target: WorkerId


def moves_between(before: Sequence[WorkerId], after: Sequence[WorkerId]) -> tuple[GroupMove, ...]:
    """The moves that turn one list of owners into another, by key group."""
    return tuple(
        GroupMove(KeyGroup(group), source, target)
        for group, (source, target) in enumerate(zip(before, after, strict=True))
        if source != target
    )


def by_pair(moves: Sequence[GroupMove]) -> dict[tuple[WorkerId, WorkerId], tuple[GroupMove, ...]]:
    """Moves divided by (source, target), in the order in which pairs first occur."""
    found: dict[tuple[WorkerId, WorkerId], list[GroupMove]] = {}
    for move in moves:
        found.setdefault((move.source, move.target), []).append(move)
    return {pair: tuple(some) for pair, some in found.items()}


def first_round(
    moves: Sequence[GroupMove], size: int
) -> tuple[tuple[GroupMove, ...], tuple[GroupMove, ...]]:
    """A round of moves in which every target gets at most `size` key groups; and the rest."""
    gets: Counter[WorkerId] = Counter()
    chosen: list[GroupMove] = []
    rest: list[GroupMove] = []
    for move in moves:
        gets[move.target] += 1
        (chosen if gets[move.target] <= size else rest).append(move)
    return tuple(chosen), tuple(rest)


def first_bytes(
    moves: Sequence[GroupMove], bytes_of: Mapping[KeyGroup, int], most: int
) -> tuple[tuple[GroupMove, ...], tuple[GroupMove, ...]]:
    """A round of moves in which a target gets so many bytes, or one key group; and the rest."""
    gets: dict[WorkerId, int] = {}
    chosen: list[GroupMove] = []
    rest: list[GroupMove] = []
    for move in moves:
        size = bytes_of.get(move.group, 0)
        if move.target in gets and gets[move.target] + size > most:
            rest.append(move)
        else:
            gets[move.target] = gets.get(move.target, 0) + size
            chosen.append(move)
    return tuple(chosen), tuple(rest)


def in_rounds(moves: Sequence[GroupMove], size: int) -> list[tuple[GroupMove, ...]]:
    """Rounds of moves in which every target gets at most `size` key groups."""
    rounds: list[tuple[GroupMove, ...]] = []
    left = tuple(moves)
    while left:
        some, left = first_round(left, size)
        rounds.append(some)
    return rounds


def without_clashes(moves: Sequence[GroupMove], size: int) -> list[tuple[GroupMove, ...]]:
    """Rounds in which no worker takes part in more than `size` moves: Megaphone's batched plan.

    Greedy matching of sources and targets, the busiest workers first, so that the number of rounds
    is near the largest number of moves of one worker.
    """
    left = list(moves)
    rounds: list[tuple[GroupMove, ...]] = []
    while left:
        degree: dict[WorkerId, int] = {}
        for move in left:
            for worker in (move.source, move.target):
                degree[worker] = degree.get(worker, 0) + 1
        used: dict[WorkerId, int] = {}
        chosen: list[GroupMove] = []
        rest: list[GroupMove] = []
        for move in sorted(left, key=lambda m: -max(degree[m.source], degree[m.target])):
            if used.get(move.source, 0) < size and used.get(move.target, 0) < size:
                chosen.append(move)
                for worker in (move.source, move.target):
                    used[worker] = used.get(worker, 0) + 1
            else:
                rest.append(move)
        rounds.append(tuple(chosen))
        left = rest
    return rounds
