"""What must hold of the leases of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.simulation.checks import Failure

if TYPE_CHECKING:
    from anabranch.simulation.agent import SimulatedAgent


class OwnLeaseCheck:
    """One agent: once its lease is over, no answer that comes late gives its workers more time."""

    def __init__(self, agent: SimulatedAgent) -> None:
        self._agent = agent
        self._renewed = agent.machine.clock

    def answered(self, sent: float) -> None:
        """The coordinator has answered what was sent then."""
        agent = self._agent
        if agent.machine.clock - self._renewed < agent.lease.seconds:
            self._renewed = max(self._renewed, sent)
        elif agent.is_alive:
            agent.cluster.count("answers_too_late")
            agent.machine.after(1, "", self._must_be_gone)

    def _must_be_gone(self) -> None:
        agent = self._agent
        if agent.is_alive and not agent.cluster.is_closed:
            raise Failure(f"the lease of {agent.end} was over, and a late answer has renewed it")
