"""What is put under load, at which rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

KEY_BYTES = 16
"""A key and its count."""


def keys_of(state_gb: float, payload_bytes: int) -> int:
    """Keys of a key-count whose state has this size."""
    return max(1, math.ceil(state_gb * 1e9 / (payload_bytes + KEY_BYTES)))


@dataclass(frozen=True)
class RunLoad:
    """A query with its parameters at a rate; equal ones are the same measurement."""

    name: str
    rate: float
    about: str = ""
    """Parameters, in words."""
    keys: int = 0
    """Of key-counts, with the next one: how large their state is."""
    payload_bytes: int = 0

    @classmethod
    def key_count(cls, rate: float, keys: int, payload_bytes: int) -> RunLoad:
        """Key-count over a state that was prepared."""
        size = keys * (payload_bytes + KEY_BYTES) / 1e9
        return cls("key-count", rate, f"{size:.2g} GB, {keys:,} keys", keys, payload_bytes)

    @property
    def title(self) -> str:
        """Name, parameters and rate in a line."""
        return f"{self.name}: {self.about}, {self.rate:,.0f} rows/s"

    @property
    def state_bytes(self) -> int:
        """Keys, counts and payloads, without what any store adds."""
        return self.keys * (self.payload_bytes + KEY_BYTES)
