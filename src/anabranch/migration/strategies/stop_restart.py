"""Stop everything, save, start anew under the new routing, load everything: Flink, Storm, Spark."""

from __future__ import annotations

from anabranch.migration.plan import Move
from anabranch.migration.steps import Gate, Load, Quiet, Restart, Save, Steps, Ungate


def stop_restart(moves: tuple[Move, ...]) -> Steps:
    """Nothing runs between the gate and the last load."""
    yield Gate()
    yield Quiet()
    yield Save()
    yield Restart(moves)
    yield Load()
    yield Ungate()
