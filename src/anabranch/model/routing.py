"""Who owns which key group: versioned, changed by the coordinator only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.model.ids import KeyGroup, Lane, WorkerId


@dataclass(frozen=True, slots=True)
class Routing:
    """Owner of every key group at one version."""

    version: int
    owners: tuple[WorkerId, ...]

    def owner(self, group: int) -> WorkerId:
        """Owner of one key group."""
        return self.owners[group]

    def groups_of(self, worker: WorkerId) -> tuple[KeyGroup, ...]:
        """Key groups of one worker, ascending."""
        return tuple(KeyGroup(g) for g, owner in enumerate(self.owners) if owner == worker)

    def by_owner(self, groups: Iterable[int]) -> dict[WorkerId, tuple[KeyGroup, ...]]:
        """The given key groups, divided by owner."""
        found: dict[WorkerId, list[KeyGroup]] = {}
        for group in groups:
            found.setdefault(self.owners[group], []).append(KeyGroup(group))
        return {worker: tuple(owned) for worker, owned in found.items()}


def first_workers(count: int) -> list[WorkerId]:
    """Those that a service begins with."""
    return [WorkerId(f"w{number}") for number in range(1, count + 1)]


def initial_routing(groups: int, workers: Sequence[WorkerId]) -> Routing:
    """Spread key groups evenly; round robin, so that a lane meets few owners."""
    return Routing(1, tuple(workers[g % len(workers)] for g in range(groups)))


def lane_groups(lane: Lane | int, lanes: int, groups: int) -> tuple[KeyGroup, ...]:
    """Key groups whose rows a lane carries."""
    return tuple(KeyGroup(g) for g in range(lane, groups, lanes))
