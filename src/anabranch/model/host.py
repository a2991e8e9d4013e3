"""Hosts: where workers can run, as values that cross processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.model.ids import HostId

DRIVER = HostId("driver")
"""The driver's own machine, whose workers need no agent."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host can do, as its agent says when it joins."""

    host: HostId
    capacity: int | None = None
    """How many workers it may run; None: as many as are asked for."""
    labels: dict[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    """What all its workers together may use; None: there is no limit that is known."""
