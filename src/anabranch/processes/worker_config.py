"""What a worker process is told when it starts; sent through a pipe, token included."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import KeySpace
from anabranch.state.backend import MEMORY, Backend
from anabranch.transport.auth import Credentials
from anabranch.transport.tls import Certificate

DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_SNAPSHOT_SECONDS = 30.0

STATES = ("hybrid", "local", "remote")
"""Memory is a cache over the store; it has all; it has nothing between batches."""

CHECKPOINTS = ("changelog", "full", "unaligned", "independent")
"""What has changed; all state of what has changed; changes and rows that wait; rows."""


def check_checkpoint(checkpoint: object, snapshot_seconds: object) -> None:
    """Refuse what a worker could not start with."""
    if checkpoint not in CHECKPOINTS:
        names = ", ".join(CHECKPOINTS)
        raise InvalidArgument(f"checkpoint must be one of {names}, got {checkpoint!r}.")
    if snapshot_seconds is None:
        return
    if not isinstance(snapshot_seconds, int | float) or not snapshot_seconds > 0:
        raise InvalidArgument(f"snapshot_seconds must be positive, got {snapshot_seconds!r}.")
    if checkpoint != "independent":
        raise InvalidArgument(
            f'snapshot_seconds cannot be obeyed: with checkpoint="{checkpoint}" state is saved '
            'after as much as it changes. Leave it out, or use checkpoint="independent".'
        )


def settled_state(
    state: object, backend: str, checkpoint: str, state_memory_bytes: int | None
) -> str:
    """How much of the state is to be in memory; refuses what could not be obeyed.

    Without a wish (None), key groups are in memory in part wherever that is possible.
    """
    if state is not None and state not in STATES:
        raise InvalidArgument(f"state must be one of {', '.join(STATES)}, got {state!r}.")
    why = ""
    if backend == "rocksdb":
        why = 'backend="rocksdb" brings whole key groups to its local disk'
    elif checkpoint == "independent":
        why = 'checkpoint="independent" processes rows again on whole key groups'
    if why and state not in (None, "local"):
        raise InvalidArgument(
            f'state="{state}" cannot be obeyed: {why}. Leave state out, or use '
            'backend="memory" and another checkpoint mode.'
        )
    settled = str(state or ("local" if why else "hybrid"))
    if state_memory_bytes is not None and backend == "memory" and settled != "hybrid":
        reason = why or f'state="{settled}" keeps {"all" if settled == "local" else "nothing"}'
        raise InvalidArgument(
            f"state_memory_bytes cannot be obeyed: {reason}. It is a limit for "
            'backend="rocksdb", or for state="hybrid" with a checkpoint mode other than '
            '"independent".'
        )
    return settled


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of one worker process."""

    worker: str
    incarnation: str
    """Unique over all processes that ever wrote to the location."""
    credentials: Credentials = field(repr=False)
    """For its calls to other workers; they call it with the same token."""
    host: str
    location: str
    key_groups: int
    bins: int
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """Limit for rows and outputs in flight; beyond it they go to disk."""
    fsync: bool = True
    shared: bool = False
    """Whether other users may read what it makes on local disks, as far as the umask lets them."""
    backend: str = "memory"
    """Where state is: one of BACKENDS."""
    state_memory_bytes: int | None = None
    """What state may use of memory; None: as much as there is, or 1 GiB for "rocksdb"."""
    local_dir: str | None = None
    """Folder for state that is not in memory."""
    certificate: Certificate | None = field(default=None, repr=False)
    """What it shows to its callers; None: their calls are not encrypted."""
    is_remote: bool = False
    """Whether it runs on another host than the driver: folders of the driver mean nothing there."""

    coordinator: str | None = None
    """Where it hears of deaths; None: nowhere, its calls end after some silence."""
    checkpoint: str = "changelog"
    """What transactions make durable: one of CHECKPOINTS."""
    snapshot_seconds: float = DEFAULT_SNAPSHOT_SECONDS
    """How often a worker saves its state by its own clock, if it logs rows."""
    state: str = "hybrid"
    """How much of it is in memory: one of STATES."""
    whole_share: float = 0.5
    """A key group is read whole if a transaction needs this share of its pages: a page of a whole
    read costs about as much as one that is read for a key, and most are not asked for yet."""

    @property
    def reads_keys(self) -> bool:
        """Whether key groups may be in memory in part, the rest being read from the store."""
        can = self.state != "local" and self.backend == "memory"
        return can and self.checkpoint != "independent"  # rows are applied again to whole state

    @property
    def keyspace(self) -> KeySpace:
        """How keys are divided."""
        return KeySpace(self.key_groups, self.bins)

    def open_backend(self) -> Backend:
        """The backend, in the worker."""
        if self.backend == "memory":
            return MEMORY
        # Here, not above: the package that it needs may be missing.
        from anabranch.state.rocksdb.backend import RocksBackend

        return RocksBackend(self.state_memory_bytes or DEFAULT_MEMORY_BYTES, self.local_dir)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), default=bytes.decode)  # PEM is text

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """The inverse."""
        settings = json.loads(text)
        given, shown = settings.pop("credentials"), settings.pop("certificate")
        trusted = given["certificates"]
        return cls(
            credentials=Credentials(given["token"], trusted and trusted.encode()),
            certificate=shown and Certificate(shown["pem"].encode(), shown["key"].encode()),
            **settings,
        )
