"""State entries, changes and snapshots that tests of durability write and read back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.durability.snapshot import encode_snapshot
from anabranch.model.keyspace import DELETE, HASH, OP, UPSERT, KeySpace
from anabranch.state.contract import Sections

SMALL = KeySpace(groups=8, bins=4)


def entries(hashes: Iterable[int], value: int = 0) -> pa.Table:
    """One entry for each hash, with a key and a payload of several types."""
    listed = list(hashes)
    return pa.table(
        {
            HASH: pa.array(listed, pa.int64()),
            "key": pa.array([f"k{hash_}" for hash_ in listed], pa.string()),
            "count": pa.array([value] * len(listed), pa.int64()),
            "tags": pa.array(
                [[value, hash_ % 7] if hash_ % 3 else None for hash_ in listed],
                pa.list_(pa.int64()),
            ),
        }
    )


def changes(upserts: Iterable[int], deletes: Iterable[int] = (), value: int = 0) -> pa.Table:
    """A changelog section."""
    upserts, deletes = list(upserts), list(deletes)
    ops = pa.array([UPSERT] * len(upserts) + [DELETE] * len(deletes), pa.uint8())
    return entries([*upserts, *deletes], value).add_column(1, OP, ops)


def random_hashes(count: int, seed: int = 0) -> list[int]:
    chosen = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count, dtype=np.int64)
    return [int(hash_) for hash_ in np.unique(chosen)]


def ordered_by_bin(hashes: Iterable[int], keyspace: KeySpace) -> list[int]:
    return sorted(hashes, key=lambda hash_: int(keyspace.bin_of(np.array([hash_]))[0]))


def in_order(hashes: Iterable[int], keyspace: KeySpace) -> list[int]:
    """As in a snapshot of one key group."""
    return ordered_by_bin(sorted(hashes), keyspace)


def by_group(hashes: Iterable[int], keyspace: KeySpace) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {group: [] for group in range(keyspace.groups)}
    for hash_ in hashes:
        found[hash_ % keyspace.groups].append(hash_)
    return found


class DictState:
    """Group state as a dictionary: the sequential model of install and replay."""

    def __init__(self) -> None:
        self.content: dict[tuple[str, int], int] = {}

    def begin(self) -> None: ...

    def undo(self) -> None: ...

    def export(self, bins: Collection[int] | None = None, hashes: Any = None) -> Sections:
        raise NotImplementedError

    def export_packed(self, bins: Collection[int]) -> Sections:
        raise NotImplementedError

    def install(self, sections: Sections) -> None:
        for name, table in sections.items():
            for row in table.to_pylist():
                assert (name, row[HASH]) not in self.content
                self.content[name, row[HASH]] = row["count"]

    def replay(self, sections: Sections) -> None:
        for name, table in sections.items():
            assert table.num_rows
            for row in table.to_pylist():
                if row[OP] == DELETE:
                    self.content.pop((name, row[HASH]), None)
                else:
                    self.content[name, row[HASH]] = row["count"]

    def discard(self, bins: Collection[int]) -> None:
        raise NotImplementedError

    @property
    def num_rows(self) -> int:
        return len(self.content)

    @property
    def num_bytes(self) -> int:
        return 0


def joined(buffers: list[Any]) -> Any:
    return pa.py_buffer(b"".join(buffers))


def sample_snapshot() -> tuple[Any, dict[int, dict[str, pa.Table]]]:
    hashes = by_group(random_hashes(500), SMALL)
    groups = {
        group: {"value": entries(in_order(inside, SMALL)), "list": entries(inside[:1])}
        for group, inside in hashes.items()
        if group != 3
    }
    groups[3] = {}
    return joined(encode_snapshot(groups, SMALL)), groups
