"""What must hold of claims: which agent has a host, and which has lost it.

Kept apart from `protocol/leases.py`: the checks count for themselves what was heard, and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.model.ids import AgentId, HostId
from anabranch.protocol.leases import JoinAnswer, Loss
from anabranch.simulation.agent import TIMES
from anabranch.simulation.checks import Failure

if TYPE_CHECKING:
    from anabranch.simulation.agent import SimulatedAgent


@dataclass(slots=True)
class Holder:
    """The agent that has a host."""

    agent: AgentId
    heard: int
    stream: int | None = None
    left: int | None = None
    """When its order stream broke, if it has not come back."""

    def is_well(self, now: int) -> bool:
        """Whether nobody may take its place."""
        return self.left is None and now - self.heard < TIMES.silence


class ClaimChecks:
    """The hosts of one life of the coordinator."""

    def __init__(self) -> None:
        self._holders: dict[HostId, Holder] = {}
        self._given_up: set[AgentId] = set()

    def asked(self, agent: SimulatedAgent, answer: JoinAnswer, now: int) -> None:
        """An agent wanted to join; the loss that this has caused comes after."""
        holder = self._holders.get(agent.host)
        if answer in (JoinAnswer.WELCOME, JoinAnswer.AGAIN) and agent.id in self._given_up:
            raise Failure(f"{agent.end} was given up, and is told: {answer.value}")
        if answer is JoinAnswer.WELCOME:
            if holder is not None and holder.is_well(now):
                raise Failure(f"{agent.end} takes the place of {holder.agent}, which is well")
            self._holders[agent.host] = Holder(agent.id, now)
        elif answer is JoinAnswer.AGAIN and holder is not None:
            holder.heard = now

    def lost(self, loss: Loss) -> None:
        """An agent was given up."""
        self._given_up.add(loss.agent)
        holder = self._holders.get(loss.host)
        if holder is not None and holder.agent == loss.agent:
            del self._holders[loss.host]

    def heard(self, agent: SimulatedAgent, now: int) -> None:
        """A beat has come."""
        holder = self._holder(agent)
        if holder is not None:
            holder.heard = now

    def opened(self, agent: SimulatedAgent, stream: int, now: int) -> None:
        """An order stream is there."""
        holder = self._holder(agent)
        if holder is not None:
            holder.heard, holder.stream, holder.left = now, stream, None

    def closed(self, agent: SimulatedAgent, stream: int, now: int) -> None:
        """An order stream has broken."""
        holder = self._holder(agent)
        if holder is not None and holder.stream == stream:
            holder.stream, holder.left = None, now

    def looked(self, now: int) -> None:
        """The coordinator has just given up all whose time is over."""
        for host, holder in self._holders.items():
            if now - holder.heard >= TIMES.lease:
                raise Failure(f"{holder.agent} was not heard for a lease, and still has {host}")
            if holder.left is not None and now - holder.left >= TIMES.absence:
                raise Failure(f"the order stream of {holder.agent} is gone, and it has {host}")

    def _holder(self, agent: SimulatedAgent) -> Holder | None:
        holder = self._holders.get(agent.host)
        return holder if holder is not None and holder.agent == agent.id else None
