"""Key-count: how often each key has come. The smallest workload with state, and an example.

Keys are drawn evenly or by Zipf's law (key k with a probability in proportion to 1 / (k + 1)^s).
With a preload, every key comes once before, and may bring a payload that its state keeps: the way
to give the state any size.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch import agg
from anabranch.errors import InvalidArgument
from anabranch.service import StateService
from anabranch_bench.workloads.chance import Chance, Doubles, Longs
from anabranch_bench.workloads.contract import Family, Output, Workload

RESULT = "counts"
_KEY, _PAYLOAD = 0, 1
_ZIPF_KEYS_MAX = 10_000_000
"""The law's table has eight bytes for each key, in every process that makes events."""


@dataclass(frozen=True)
class KeyCountConfig:
    """Parameters of the stream."""

    keys: int = 100_000
    zipf: float = 0.0
    """Exponent of Zipf's law; 0: evenly."""
    payload_bytes: int = 0
    """Bytes that each key brings in the preload and its state keeps."""
    preload: bool = False
    """Whether every key comes once at the start."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keys < 1 or self.payload_bytes < 0 or self.zipf < 0:
            raise InvalidArgument(
                "Key-count needs at least one key, and neither a negative payload nor a negative "
                f"exponent; got {self}."
            )
        if self.payload_bytes and not self.preload:
            raise InvalidArgument("Payloads come with the preload: ask for --preload as well.")
        if self.zipf and self.keys > _ZIPF_KEYS_MAX:
            raise InvalidArgument(
                f"Zipf's law is for at most {_ZIPF_KEYS_MAX:,} keys, got {self.keys:,}."
            )


class KeyCountEvents:
    """Rows (k, payload); without a payload the column is missing."""

    def __init__(self, config: KeyCountConfig) -> None:
        self.config = config
        self._law: Doubles | None = None

    @property
    def schema(self) -> pa.Schema:
        """A key, and what its state keeps."""
        payload = [("payload", pa.binary())] if self.config.payload_bytes else []
        return pa.schema([("k", pa.int64()), *payload])

    @property
    def preload_rows(self) -> int:
        """Rows at the start that bring each key once."""
        return self.config.keys if self.config.preload else 0

    def between(self, first: int, end: int) -> pa.RecordBatch:
        """Rows by number."""
        rows = np.arange(first, end, dtype=np.int64)
        chance = Chance(self.config.seed, rows)
        is_preload = rows < self.preload_rows
        keys = np.where(is_preload, rows, self._drawn(chance))
        columns = [pa.array(keys)]
        if self.config.payload_bytes:
            noise, offsets = chance.bytes(
                _PAYLOAD, np.where(is_preload, self.config.payload_bytes, 0)
            )
            buffers = [pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(noise)]
            valid = pa.array(is_preload).buffers()[1]
            columns.append(pa.Array.from_buffers(pa.binary(), len(rows), [valid, *buffers]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _drawn(self, chance: Chance) -> Longs:
        config = self.config
        if not config.zipf:
            return np.floor(chance.unit(_KEY) * config.keys).astype(np.int64)
        if self._law is None:
            weights = np.arange(1, config.keys + 1, dtype=np.float64) ** -config.zipf
            law = np.cumsum(weights)
            self._law = law / law[-1]
        return np.searchsorted(self._law, chance.unit(_KEY), side="right").astype(np.int64)


def build(service: StateService, rows: DataFrame) -> DataFrame:
    """(k, n), a row for each key of a batch; and a checksum of the payload, if there is one."""
    grouped = service.group_by(rows, "k")
    if "payload" not in rows.columns:
        return grouped.aggregate(n=agg.count(), name="counts")
    payload = agg.first("payload", ignore_nulls=True)
    counts = grouped.aggregate(n=agg.count(), payload=payload, name="counts")
    return counts.selectExpr("k", "n", "crc32(payload) as payload")


class KeyCountWorkload(Workload):
    """Counts rows by key."""

    name = "key-count"
    description = "how often each key has come"
    outputs: Mapping[str, Output] = {RESULT: Output(keys=("k",))}

    def __init__(self, config: KeyCountConfig | None = None) -> None:
        self.config = config or KeyCountConfig()
        self.events = KeyCountEvents(self.config)
        self.preload_rows = self.events.preload_rows

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """One aggregate."""
        return {RESULT: build(service, events)}

    def expected(self, events: pa.Table) -> Mapping[str, pa.Table]:
        """Counts of an array."""
        counts = np.bincount(events.column("k").to_numpy(), minlength=self.config.keys)
        seen = np.flatnonzero(counts)
        columns = {"k": seen, "n": counts[seen]}
        if self.config.payload_bytes:
            payloads = events.column("payload").slice(0, self.config.keys).to_pylist()
            sums = np.array([0 if p is None else zlib.crc32(p) for p in payloads])
            columns["payload"] = sums[seen]
        return {RESULT: pa.table(columns)}


class KeyCountFamily(Family):
    """Key-count with any key space."""

    name = "key-count"
    description = KeyCountWorkload.description
    rate = 20_000

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """The stream."""
        usual = KeyCountConfig()
        options = parser.add_argument_group("stream")
        options.add_argument(
            "--keys", type=int, metavar="N", default=usual.keys, help=f"key space ({usual.keys:,})"
        )
        options.add_argument(
            "--zipf", type=float, metavar="S", default=0.0, help="exponent of Zipf's law (0: even)"
        )
        options.add_argument(
            "--payload-bytes", type=int, metavar="N", default=0, help="kept for each key (0)"
        )
        options.add_argument(
            "--preload", action="store_true", help="bring every key once before the load"
        )
        options.add_argument("--seed", type=int, metavar="N", default=0, help="of the keys (0)")

    def from_options(self, options: argparse.Namespace) -> Workload:
        """Key-count with these parameters."""
        return KeyCountWorkload(
            KeyCountConfig(
                keys=options.keys,
                zipf=options.zipf,
                payload_bytes=options.payload_bytes,
                preload=options.preload,
                seed=options.seed,
            )
        )

    def standard(self, rate: float) -> Sequence[Workload]:
        """Even and skewed keys."""
        return [KeyCountWorkload(KeyCountConfig(zipf=zipf)) for zipf in (0.0, 1.0)]
