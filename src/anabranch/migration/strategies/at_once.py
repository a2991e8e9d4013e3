"""What every strategy does while no batch runs: there is nobody to protect."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.migration.plan import GroupMove, first_bytes
from anabranch.migration.steps import AddCount, AskIdle, Clean, Copy, Flip, Import, Steps
from anabranch.migration.strategies.live import SMALL_BYTES, WAVE_BYTES
from anabranch.model.ids import KeyGroup


def at_once(moves: tuple[GroupMove, ...], bytes_of: Mapping[KeyGroup, int]) -> Steps:
    """One round for all key groups, or several where there is much state; none waits for a batch.

    A batch may begin at any moment. It meets one round at most: key groups that have flipped and
    are small, or were copied before. What has not flipped by then is left to the strategy.
    """
    left = tuple(sorted(moves, key=lambda move: bytes_of.get(move.group, 0)))
    while left:
        some, left = first_bytes(left, bytes_of, WAVE_BYTES)
        is_large = sum(bytes_of.get(move.group, 0) for move in some) > SMALL_BYTES
        if is_large:
            yield Copy(some)  # the sources still own them, should a batch begin
        if not (yield AskIdle())["idle"]:
            return
        yield AddCount("idle_rounds")
        yield AddCount("idle_groups", len(some))
        yield Flip(some)
        yield Import(some)
        if is_large:
            yield Clean(some)
