"""What a worker knows about who owns which key group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol.worker_messages import GroupsDropped, GroupsGranted, GroupsReleased

STORE = WorkerId("$store")
"""The source of what is in the store and not (or no longer) in memory; never out of reach."""


@dataclass(slots=True)
class Ownership:
    """Key groups that are granted here, and those that were given away."""

    granted: dict[KeyGroup, int] = field(default_factory=dict)
    """Routing version of each key group that is owned here."""
    released: dict[KeyGroup, tuple[int, WorkerId]] = field(default_factory=dict)
    """Version and new owner of key groups that were owned here; kept until they come back, as lanes
    may still be on their way when a move is over."""
    ready_first: set[KeyGroup] = field(default_factory=set)
    versions: dict[KeyGroup, int] = field(default_factory=dict)
    """The newest version heard about each key group; kept, so that nothing late counts."""

    def grant(self, event: GroupsGranted) -> list[KeyGroup]:
        """Own key groups, unless a newer message says otherwise; those that are new."""
        new = []
        for group in event.groups:
            if event.version < self.version(group):
                continue
            if event.version == self.granted.get(group):
                continue  # said twice: what has arrived since must not be asked for again
            self.granted[group] = self.versions[group] = event.version
            self.released.pop(group, None)
            (self.ready_first.add if event.ready_first else self.ready_first.discard)(group)
            new.append(group)
        return new

    def release(self, event: GroupsReleased) -> list[KeyGroup]:
        """Own key groups no longer, unless they were granted again since; those that are gone."""
        gone = []
        for group in event.groups:
            if event.version <= self.version(group):
                continue
            self.versions[group] = event.version
            was_here = self.granted.pop(group, None) is not None or group in self.released
            if was_here:
                self.released[group] = event.version, event.target
            gone.append(group)
        return gone

    def droppable(self, event: GroupsDropped) -> tuple[KeyGroup, ...]:
        """Key groups that are not owned, and of which nothing newer is known."""
        return tuple(
            group
            for group in event.groups
            if not self.is_owner(group)
            and (event.version is None or self.version(group) <= event.version)
        )

    def new_owners(
        self, groups: Iterable[KeyGroup]
    ) -> dict[WorkerId, tuple[tuple[KeyGroup, ...], int]]:
        """Of key groups that were given away: those of each, and the version known of all."""
        found: dict[WorkerId, tuple[tuple[KeyGroup, ...], int]] = {}
        for group in groups:
            version, target = self.released[group]
            some, known = found.get(target, ((), version))
            found[target] = (*some, group), min(known, version)
        return found

    def version(self, group: KeyGroup) -> int:
        """The newest version heard about a key group."""
        return self.versions.get(group, 0)

    def is_owner(self, group: KeyGroup) -> bool:
        """Whether transactions may run on it."""
        return group in self.granted
