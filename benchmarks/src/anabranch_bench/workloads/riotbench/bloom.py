"""The Bloom filter: values of senders that are not known become null."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.riotbench.observations import replaced

if TYPE_CHECKING:
    from rbloom import Bloom

FALSE_POSITIVES = 0.01


def stable_hash(item: object) -> int:
    """128 signed bits that are the same in every process (Python's own hash of texts is not)."""
    digest = hashlib.blake2b(str(item).encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little", signed=True)


def make_filter(ids: Any, false_positives: float = FALSE_POSITIVES) -> bytes:
    """A filter that contains all ids, as bytes."""
    from rbloom import Bloom

    known = Bloom(max(1, len(ids)), false_positives, stable_hash)
    known.update(ids)
    return known.save_bytes()


@functools.lru_cache(maxsize=8)
def open_filter(saved: bytes) -> Bloom:
    """A filter from its bytes."""
    from rbloom import Bloom

    return Bloom.load_bytes(saved, stable_hash)


@dataclass(frozen=True)
class BloomFilter:
    """Nulls all values of a message whose sender is not contained (1:1)."""

    saved: bytes

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows with fewer values; each sender is tested once."""
        known = open_filter(self.saved)
        senders = rows.column("sensor").combine_chunks().dictionary_encode()
        found = pa.array([name in known for name in senders.dictionary.to_pylist()], pa.bool_())
        keep = found.take(senders.indices)
        value = rows.column("value")
        return replaced(rows, "value", pc.if_else(keep, value, pa.scalar(None, pa.float64())))
