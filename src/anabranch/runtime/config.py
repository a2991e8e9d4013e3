"""What a worker process is told when it starts; sent over its standard input, token included."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from anabranch.model.keyspace import KeySpace
from anabranch.state.backend import MEMORY, Backend

DEFAULT_MEMORY_BYTES = 1 << 30

STATES = ("hybrid", "local", "remote")
"""Memory is a cache over the store; it has all; it has nothing between batches."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of one worker process."""

    worker: str
    incarnation: str
    """Unique over all processes that ever wrote to the location."""
    token: str
    host: str
    location: str
    key_groups: int
    bins: int
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """Limit for rows and outputs in flight; beyond it they go to disk."""
    fsync: bool = True
    backend: str = "memory"
    """Where state is: one of BACKENDS."""
    state_memory_bytes: int = DEFAULT_MEMORY_BYTES
    """What a backend that keeps state elsewhere may use of memory."""
    local_dir: str | None = None
    """Folder for state that is not in memory."""

    state: str = "hybrid"
    """How much of it is in memory: one of STATES."""

    @property
    def reads_keys(self) -> bool:
        """Whether key groups may be in memory in part, the rest being read from the store."""
        return self.state != "local" and self.backend == "memory"

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

        return RocksBackend(self.state_memory_bytes, self.local_dir)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """The inverse."""
        return cls(**json.loads(text))
