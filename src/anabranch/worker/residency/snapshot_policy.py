"""When key groups are saved: rarely enough to be cheap, often enough that a restart is quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GROWTH = 2.0
"""A key group is due when its changelog has this many times as many bytes as its state: snapshots
write about half as much as changelogs do, and a restart reads about thrice the state at most."""

LATE_EPOCHS = 768
"""... or, if it has changed at all, after this many epochs: manifests list a changelog for each."""

PATIENCE = 0.5
"""The most worn are saved from half of that on, as fast as is needed to keep up: all of them may
be as worn, and none of the batches is to pay for all."""

PATIENCE_MOVING = 2.0
"""So many times as worn before it is saved while key groups move: both at once would be felt."""

BYTES_MIN = 64 << 10
"""Nothing smaller is worth a snapshot of its own before it is late."""

CATCH_UP = 1.5
"""So many times the bytes that are needed to keep up are saved after an epoch once some key group
is due."""


@dataclass(slots=True)
class Wear:
    """How much changelog a key group has gathered since its last snapshot."""

    snapshot_epoch: int
    bytes: int = 0


def due(
    wear: Mapping[int, Wear],
    sizes: Mapping[int, int],
    epoch: int,
    changed: int,
    patience: float = PATIENCE,
    debt: float = 0.0,
) -> tuple[list[int], float]:
    """Key groups to save after an epoch with so many bytes of changes, the most worn first.

    `sizes` has the bytes of each key group that is here. Key groups are larger than what one epoch
    may save: `debt` is what those before have saved too much, and returned for the next one.
    """
    worn = {group: _wear(wear[group], size, epoch) for group, size in sizes.items()}
    costs = {group: max(size, BYTES_MIN / GROWTH) for group, size in sizes.items()}
    changing = [group for group in worn if worn[group]]
    oldest = min((wear[group].snapshot_epoch for group in changing), default=epoch)
    needed = max(changed / GROWTH, sum(costs[group] for group in changing) / LATE_EPOCHS, 1)
    if epoch - oldest >= PATIENCE * LATE_EPOCHS:
        needed = max(needed, BYTES_MIN)  # cheaper than to list more changelogs in each manifest
    is_behind = max(worn.values(), default=0) >= 1
    left = needed * (CATCH_UP if is_behind else 1) - debt
    chosen = []
    for group in sorted(worn, key=lambda g: -worn[g]):
        if worn[group] < patience or left <= 0:
            break
        chosen.append(group)
        left -= costs[group]
    most = max(costs.values(), default=0)  # what was owed for more is for others now
    return chosen, min(max(0.0, -left), most)


def _wear(wear: Wear, size: int, epoch: int) -> float:
    """From 1 on, a snapshot is due."""
    if not wear.bytes:
        return 0.0
    grown = wear.bytes / max(BYTES_MIN, GROWTH * size)
    return max(grown, (epoch - wear.snapshot_epoch) / LATE_EPOCHS)
