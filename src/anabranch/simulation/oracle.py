"""A small stateful operator and its sequential run: what every schedule of faults must be equal to.

A key's state is the list of its rows as (epoch, row id): a lost, doubled or misordered row shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

GROUPS = 8
"""Key groups of a simulated key space; a key belongs to group `key % GROUPS`."""
KEYS = 20
OPERATOR = "counts"

Row = tuple[int, int, int]
"""(key, row id, epochs until a timer is due; 0: no timer)"""

KeyState = tuple[tuple[tuple[int, int], ...], int | None]
"""Rows that the key has seen, and the epoch in which its timer is due."""

KeyStates = dict[int, KeyState]
Changes = dict[int, KeyState | None]
Outputs = tuple[tuple[int, str, int], ...]
Rows = dict[int, list[Row]]
"""A batch: rows by key group."""

NOTHING: KeyState = ((), None)


def apply_rows(state: KeyStates, epoch: int, rows: list[Row]) -> tuple[Changes, Outputs]:
    """The operator on one key group: running counts, then timers that are due."""
    changes: Changes = {}
    outputs: list[tuple[int, str, int]] = []
    if not state and not rows:
        return changes, ()
    for key, row_id, timer in rows:
        seen, due = changes.get(key) or state.get(key, NOTHING)
        changes[key] = ((*seen, (epoch, row_id)), epoch + timer if timer else due)
    for key, changed in changes.items():
        assert changed is not None
        outputs.append((key, "count", len(changed[0])))
    for key in sorted({*state, *changes}):
        seen, due = changes.get(key) or state.get(key, NOTHING)
        if due is not None and due <= epoch:
            outputs.append((key, "timer", len(seen)))
            # Odd keys end with their timer: deletions must be durable too.
            changes[key] = None if key % 2 else (seen, None)
    return changes, tuple(outputs)


def merge(state: KeyStates, changes: Changes) -> KeyStates:
    """The state after the changes; the old one stays as it is."""
    if not changes:
        return state
    merged: Changes = {**state, **changes}
    return {key: value for key, value in merged.items() if value is not None}


@dataclass(slots=True)
class Oracle:
    """Input, and the state and outputs of a run without any fault."""

    batches: list[Rows]
    states: list[list[KeyStates]]
    """By epoch, by key group."""
    outputs: list[list[Outputs]]

    @classmethod
    def create(cls, rng: Random, batches: int) -> Oracle:
        """Random input and its sequential result."""
        oracle = cls([], [], [])
        state: list[KeyStates] = [{} for _ in range(GROUPS)]
        row_id = 0
        for epoch in range(batches):
            rows: Rows = {}
            for _ in range(int(rng.random() * 10)):
                row_id += 1
                key = int(rng.random() * KEYS)
                chance = rng.random()
                timer = 1 + int(chance * 8) if chance < 0.3 else 0
                rows.setdefault(key % GROUPS, []).append((key, row_id, timer))
            done = [apply_rows(state[g], epoch, rows.get(g, [])) for g in range(GROUPS)]
            state = [merge(state[g], done[g][0]) for g in range(GROUPS)]
            oracle.batches.append(rows)
            oracle.states.append(state)
            oracle.outputs.append([outputs for _, outputs in done])
        return oracle
