"""Snapshots: in order, and read by key group and bin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from tests.unit.durability.samples import (
    SMALL,
    by_group,
    entries,
    in_order,
    joined,
    random_hashes,
    sample_snapshot,
)

from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.group_restore import read_groups
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT, encode_snapshot
from anabranch.model.keyspace import HASH


def of_group(file: PageFile, group: int, bins: Any = None) -> dict[str, pa.Table]:
    sections = read_groups(file, SNAPSHOT, [group], bins, SMALL)
    return {name: table for name, table in sections.items() if table.num_rows}


def test_snapshot_round_trip() -> None:
    content, groups = sample_snapshot()
    store = MemoryBlobStore()
    store.write("s", content)
    for file in (PageFile(SNAPSHOT, content), PageFile(SNAPSHOT, store, "s")):
        assert file.meta["groups"] == list(range(8))
        for group, sections in groups.items():
            read = of_group(file, group)
            assert list(read) == list(sections)
            assert all(read[name].equals(sections[name]) for name in read)


def test_snapshot_bins_are_read_alone() -> None:
    content, groups = sample_snapshot()
    file = PageFile(SNAPSHOT, content)
    for group, sections in groups.items():
        for bins in ([], [0], [1, 2], [3, 0], range(4)):
            read = of_group(file, group, bins)
            for name, table in sections.items():
                of_entry = SMALL.bin_of(table.column(HASH).to_numpy())
                expected = table.filter(pa.array(np.isin(of_entry, list(bins))))
                assert read.get(name, table.slice(0, 0)).equals(expected)


def test_snapshot_gets_ordered() -> None:
    hashes = by_group(random_hashes(300), SMALL)[2]
    file = PageFile(SNAPSHOT, joined(encode_snapshot({2: {"s": entries(hashes)}}, SMALL)))
    together = [of_group(file, 2, [bin_])["s"] for bin_ in range(4)]
    assert of_group(file, 2)["s"].equals(pa.concat_tables(together))
    assert of_group(file, 2)["s"].column(HASH).to_pylist() == in_order(hashes, SMALL)
