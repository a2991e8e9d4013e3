"""Which agent counts for a host, and for how long: claims, and leases of both sides.

The coordinator's lease of a host runs from the moment a beat is received, the agent's own from the
moment the same beat was sent. So an agent fences itself before the coordinator gives it up. Nothing
relies on that: workers that live on are harmless.

Pure: times are seconds of a clock of the caller's, which only goes forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.model.ids import AgentId, HostId


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How patient both sides are, in seconds."""

    lease: float = 10.0
    """Without a beat, or without an acknowledgement of one."""
    beat: float = 1.0
    """Between two beats, and between two signs of life on an order stream."""
    absence: float = 1.0
    """For an agent to open its order stream again."""
    proof: float = 60.0
    """For an agent that has joined to show that it can run workers."""

    @property
    def silence(self) -> float:
        """After so long, an agent does not keep another one of its host away."""
        return min(3 * self.beat, self.lease)


# --- the agent's side ---------------------------------------------------------------------------


@dataclass(slots=True)
class OwnLease:
    """How long an agent may keep its workers; once over, it stays over."""

    seconds: float
    renewed: float
    """When the newest beat that is acknowledged was sent."""
    _is_over: bool = False

    def acknowledged(self, sent: float, now: float) -> None:
        """The coordinator has answered a beat; too late is too late."""
        if not self.is_over(now):
            self.renewed = max(self.renewed, sent)

    def is_over(self, now: float) -> bool:
        """Whether the workers have to end."""
        self._is_over = self._is_over or now - self.renewed >= self.seconds
        return self._is_over

    def left(self, now: float) -> float:
        """Seconds until it is over."""
        return max(0.0, self.renewed + self.seconds - now)


# --- the coordinator's side ---------------------------------------------------------------------


class ClaimPhase(Enum):
    """How far an agent has come."""

    PROVING = "proving"
    """It has the claim, and has not shown yet that it can run workers."""
    JOINED = "joined"
    """It runs workers."""


class JoinAnswer(Enum):
    """What an agent that wants to join is told."""

    WELCOME = "welcome"
    AGAIN = "again"
    """It had lost its connection; it keeps its workers."""
    TAKEN = "taken"
    """Another agent has the host."""
    GIVEN_UP = "given up"
    """It was here, and its workers have been replaced: only as another agent it can come back."""


@dataclass(slots=True)
class Claim:
    """An agent that counts for a host."""

    agent: AgentId
    since: float
    """When it has joined."""
    heard: float
    """When its last beat, or whatever else it says, was received."""
    phase: ClaimPhase = ClaimPhase.PROVING
    stream: int | None = None
    """Its open order stream."""
    left: float | None = None
    """When that broke, if it has not come back."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An agent does not count any more."""

    host: HostId
    agent: AgentId
    reason: str
    had_joined: bool
    """Whether it ran workers."""


@dataclass(slots=True)
class Claims:
    """All hosts and their agents, as the coordinator knows them."""

    times: LeaseTimes = LeaseTimes()
    of_host: dict[HostId, Claim] = field(default_factory=dict)
    _hosts: dict[AgentId, HostId] = field(default_factory=dict)
    """Of agents that count."""
    _given_up: set[AgentId] = field(default_factory=set)

    def join(self, host: HostId, agent: AgentId, now: float) -> tuple[JoinAnswer, Loss | None]:
        """An agent wants a host; the loss is that of a silent one that had it."""
        if agent in self._given_up:
            return JoinAnswer.GIVEN_UP, None
        claim, loss = self.of_host.get(host), None
        if claim is not None and claim.agent == agent:
            claim.heard = now
            return JoinAnswer.AGAIN, None
        if claim is not None:
            if not self._is_silent(claim, now):
                return JoinAnswer.TAKEN, None
            loss = self.give_up(claim.agent, "It is silent, and another agent has its host.")
        self.of_host[host], self._hosts[agent] = Claim(agent, now, now), host
        return JoinAnswer.WELCOME, loss

    def _is_silent(self, claim: Claim, now: float) -> bool:
        return claim.left is not None or now - claim.heard >= self.times.silence

    def host_of(self, agent: AgentId) -> HostId | None:
        """The host that an agent counts for."""
        return self._hosts.get(agent)

    def claim_of(self, agent: AgentId) -> Claim | None:
        """What is known of an agent that counts."""
        host = self._hosts.get(agent)
        return None if host is None else self.of_host[host]

    def heard(self, agent: AgentId, now: float) -> bool:
        """A beat was received; False: the agent does not count."""
        claim = self.claim_of(agent)
        if claim is None:
            return False
        claim.heard = now
        return True

    def stream_opened(self, agent: AgentId, stream: int, now: float) -> bool | None:
        """An order stream, in place of one before; whether it is the first: the host has joined.

        None: the agent does not count.
        """
        claim = self.claim_of(agent)
        if claim is None:
            return None
        is_first = claim.phase is ClaimPhase.PROVING
        claim.phase, claim.stream, claim.left, claim.heard = ClaimPhase.JOINED, stream, None, now
        return is_first

    def stream_closed(self, agent: AgentId, stream: int, now: float) -> None:
        """It broke; one that was replaced before does not matter."""
        claim = self.claim_of(agent)
        if claim is not None and claim.stream == stream:
            claim.stream, claim.left = None, now

    def give_up(self, agent: AgentId, reason: str) -> Loss | None:
        """An agent does not count any more, and never will; None: it did not."""
        host = self._hosts.pop(agent, None)
        if host is None:
            return None
        claim = self.of_host.pop(host)
        self._given_up.add(agent)
        return Loss(host, agent, reason, claim.phase is ClaimPhase.JOINED)

    def expire(self, now: float) -> list[Loss]:
        """Give up all agents whose time is over."""
        losses: list[Loss] = []
        for claim in list(self.of_host.values()):
            reason = self._flaw(claim, now)
            loss = None if reason is None else self.give_up(claim.agent, reason)
            if loss is not None:
                losses.append(loss)
        return losses

    def _flaw(self, claim: Claim, now: float) -> str | None:
        if now - claim.heard >= self.times.lease:
            return f"Its agent has not been heard for {self.times.lease:g} s."
        if claim.phase is ClaimPhase.PROVING and now - claim.since >= self.times.proof:
            return (
                f"Its agent has not shown in {self.times.proof:g} s that it can run workers. "
                "Perhaps the state location does not answer there: a disk that was mounted from "
                "another machine, say."
            )
        if claim.left is not None and now - claim.left >= self.times.absence:
            return (
                f"Its agent's connection broke and did not come back in {self.times.absence:g} s."
            )
        return None

    def next_expiry(self) -> float | None:
        """When to look again, if nothing is heard until then."""
        moments = [claim.heard + self.times.lease for claim in self.of_host.values()]
        moments += [
            claim.left + self.times.absence
            for claim in self.of_host.values()
            if claim.left is not None
        ]
        moments += [
            claim.since + self.times.proof
            for claim in self.of_host.values()
            if claim.phase is ClaimPhase.PROVING
        ]
        return min(moments, default=None)
