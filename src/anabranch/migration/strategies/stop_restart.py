"""Stop everything, save, start anew under the new routing, load everything: Flink, Storm, Spark."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import CloseGate, LoadAll, OpenGate, Quiet, Restart, SaveAll, Steps


def stop_restart(moves: tuple[GroupMove, ...]) -> Steps:
    """Nothing runs between the gate and the last load."""
    yield CloseGate()
    yield Quiet()
    yield SaveAll()
    yield Restart(moves)
    yield LoadAll()
    yield OpenGate()
