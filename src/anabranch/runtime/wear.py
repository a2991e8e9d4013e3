"""When key groups are saved: rarely enough to be cheap, often enough that a restart is quick."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

GROWTH = 2.0
"""A key group is due when its changelog has this many times as many bytes as its state: snapshots
write about half as much as changelogs do, and a restart reads about thrice the state at most."""

LATE_EPOCHS = 512
"""... or, if it has changed at all, after this many epochs: manifests list a changelog for each."""

PATIENCE_MOVING = 2.0
"""So many times as worn before it is saved while key groups move: both at once would be felt."""

BYTES_MIN = 64 << 10
"""Nothing smaller is worth a snapshot of its own before it is late."""

CATCH_UP = 1.5
"""After each epoch so many times the bytes are saved that are needed to keep up in the long run.

All key groups may become due at once, and none of the batches is to pay for all of them."""


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
    patience: float = 1.0,
    debt: float = 0.0,
) -> list[int]:
    """Key groups to save after an epoch with so many bytes of changes, the most worn first.

    `sizes` has the bytes of each key group that is here; `debt` is what epochs before have saved
    too much.
    """
    worn = {group: _wear(wear[group], size, epoch) for group, size in sizes.items()}
    budget = _budget(sizes, changed) - debt
    chosen = []
    for group in sorted(worn, key=lambda g: -worn[g]):
        if worn[group] < patience or budget <= 0:
            break
        chosen.append(group)
        budget -= sizes[group]
    return chosen


def owed(chosen: Collection[int], sizes: Mapping[int, int], changed: int, debt: float) -> float:
    """The debt for the next epoch: key groups are larger than what one epoch may save."""
    spent = sum(sizes[group] for group in chosen)
    most = max(sizes.values(), default=0)  # what was owed for more is for others now
    return min(max(0.0, debt + spent - _budget(sizes, changed)), most)


def _budget(sizes: Mapping[int, int], changed: int) -> float:
    return CATCH_UP * max(changed / GROWTH, sum(sizes.values()) / LATE_EPOCHS, 1)


def _wear(wear: Wear, size: int, epoch: int) -> float:
    """From 1 on, a snapshot is due."""
    if not wear.bytes:
        return 0.0
    grown = wear.bytes / max(BYTES_MIN, GROWTH * size)
    return max(grown, (epoch - wear.snapshot_epoch) / LATE_EPOCHS)
