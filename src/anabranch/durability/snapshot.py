"""Snapshot files: the whole state of some key groups, sorted by key group, bin and hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from anabranch.durability.pages import DueColumn, PageWriter
from anabranch.model.keyspace import KeySpace

SNAPSHOT = b"SNAP"


def encode_snapshot(
    groups: Mapping[int, Mapping[str, pa.Table]],
    keyspace: KeySpace,
    due: DueColumn | None = None,
) -> list[Any]:
    """A snapshot file as buffers; no page has entries of two key groups."""
    writer = PageWriter(SNAPSHOT, keyspace, by_bin=True, due=due)
    for _, sections in sorted(groups.items()):
        for name, entries in sections.items():
            if entries.num_rows:
                writer.add(name, entries)
    return writer.finish({"groups": sorted(groups)})
