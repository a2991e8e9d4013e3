"""What agents of hosts and the coordinator say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.model.host import HostFacts
from anabranch.model.ids import AgentId, WorkerId
from anabranch.transport.messages.kinds import AliveHead, Call, Nothing, Stream

# --- before an agent trusts the coordinator ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Introduction:
    """The reply to `Introduce`."""

    proof: str
    """That the coordinator knows the token: of the nonce and the authority, made with it."""
    authority: bytes
    """PEM of the certificate authority of this run of the service."""


@dataclass(frozen=True, slots=True)
class Introduce(Call[Introduction]):
    """Who is your authority? Asked without a token, of a process that is not trusted yet."""

    token_id: str
    """Says which token the agent has, not what it is."""
    nonce: str


# --- agent to coordinator -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on both ends."""

    python: str
    pyarrow: str
    pyspark: str
    anabranch: str


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Where workers keep state that is not in memory."""

    is_needed: bool = False
    """Whether there is any."""
    wanted: str | None = None
    """What the user has written; None: each host has its own."""


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The reply to `Join`."""

    is_accepted: bool
    reason: str
    """Why not, as a sentence; the agent prints it and returns."""
    is_final: bool
    """Whether joining again makes no sense: other versions, say, and not a claim that may end."""
    nonce_path: str
    """A file in the location, whose content the agent gives back in `Prove`."""
    location: str
    beat_seconds: float
    lease_seconds: float
    environment: dict[str, str]
    """What the driver has set for workers (`ANABRANCH_*`)."""
    state_folder: StateFolder = StateFolder()


@dataclass(frozen=True, slots=True)
class Join(Call[JoinReply]):
    """A host offers itself."""

    agent: AgentId
    facts: HostFacts
    address: str
    """Of the host, as others reach it; without a port."""
    carrier: str
    """"spark", or "joined"."""
    executor: str | None
    """Of the Spark task that carries it."""
    versions: Versions


@dataclass(frozen=True, slots=True)
class ProveReply:
    """The reply to `Prove`; what workers need to be reached over TLS comes only by this channel."""

    is_accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Prove(Call[ProveReply]):
    """The agent sees the location of the coordinator."""

    agent: AgentId
    nonce: str
    proof_path: str
    """A file that the agent has written there; the coordinator reads the nonce in it."""
    listens_at: str | None
    """Where the agent answers, as its workers will, with its name."""
    error: str | None
    """Why it could not do all that."""
    folder_error: str | None = None
    """Why its workers could not keep state in their folder."""


@dataclass(frozen=True, slots=True)
class BeatReply:
    """The reply to `Beat`."""

    counts: bool
    """Whether the agent counts for its host; if not, it ends its workers."""


@dataclass(frozen=True, slots=True)
class Beat(Call[BeatReply]):
    """The agent is there."""

    agent: AgentId
    workers: tuple[WorkerId, ...]
    """Those that run."""


@dataclass(frozen=True, slots=True)
class Leave(Call[Nothing]):
    """The agent ends now, and its workers have ended."""

    agent: AgentId
    reason: str


class ReportKind(Enum):
    """What has happened to a worker process."""

    STARTED = "started"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Report(Call[Nothing]):
    """Something has happened to a worker process."""

    agent: AgentId
    process: int
    """Number of the order that started it."""
    kind: ReportKind
    address: str | None = None
    pid: int | None = None
    reason: str = ""
    """Exit code or signal, and the last lines of its standard error."""


# --- orders to an agent -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartHead:
    """Fork a worker; `Report` says how it went."""

    process: int
    config: str
    """`WorkerConfig` as JSON."""


class EndKind(Enum):
    """How a worker process is to end."""

    STOP = "stop"
    """In order."""
    KILL = "kill"
    DUMP = "dump"
    """Not at all: it writes its stacks."""


@dataclass(frozen=True, slots=True)
class EndHead:
    """End a worker process, or let it write its stacks."""

    process: int
    kind: EndKind


@dataclass(frozen=True, slots=True)
class ReturnHead:
    """End all workers and return."""

    reason: str
    is_final: bool
    """Whether joining again makes no sense: the service is over, say."""


OrderHead = StartHead | EndHead | AliveHead | ReturnHead


@dataclass(frozen=True, slots=True)
class Orders(Stream[OrderHead]):
    """Orders for an agent, as they come."""

    agent: AgentId
