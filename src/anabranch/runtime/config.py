"""What a worker process is told when it starts; sent over its standard input, token included."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from anabranch.model.keyspace import KeySpace

DEFAULT_MEMORY_BYTES = 1 << 30


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

    @property
    def keyspace(self) -> KeySpace:
        """How keys are divided."""
        return KeySpace(self.key_groups, self.bins)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """The inverse."""
        return cls(**json.loads(text))
