"""Who holds a state location: a random id for the fence, and words for the user."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any


@dataclass(frozen=True, slots=True)
class Owner:
    """One service's hold on a location; a new one for each start."""

    id: str
    pid: int
    host: str
    since: str

    @classmethod
    def this_process(cls) -> Owner:
        """A new owner in this process, from now on."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(uuid.uuid4().hex, os.getpid(), socket.gethostname(), now)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Owner:
        """The reverse of `to_json`."""
        return cls(value["id"], value["pid"], value["host"], value["since"])

    def encode(self) -> bytes:
        """The note in the lock file."""
        return json.dumps(self.to_json()).encode()
