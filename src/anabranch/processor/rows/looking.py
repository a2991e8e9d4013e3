"""Lookups of keys in the state of row operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import pyarrow as pa

from anabranch.model.keyspace import HASH
from anabranch.processor.contract import View
from anabranch.state.backend import Backend
from anabranch.state.rows.cells import Captured
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import TIMERS_AT, RowLayout
from anabranch.state.rows.pieces import in_pieces


def look_up(
    layout: RowLayout, backend: Backend, views: Mapping[int, View], keys: pa.Table, section: str
) -> Iterator[pa.Table]:
    """A state variable, or the timers, of keys (HASH and the key columns) of some key groups."""
    hashes = keys.column(HASH).to_numpy()
    groups = layout.keyspace.group_of(hashes)
    columns = [column.chunk(0) for column in keys.combine_chunks().columns[1:]]
    wanted = layout.key.read(columns, len(hashes))
    variable = layout.named(section)
    slot = TIMERS_AT if variable is None else variable.slot
    found: list[Captured] = []
    for group, (state, before) in views.items():
        rows = cast(RowGroupState, state)
        at = np.flatnonzero(groups == group).tolist()
        backend.bring_rows([rows], [len(at)], hashes[at].tolist())
        found += rows.capture([wanted[i] for i in at], slot, before)
    return in_pieces(layout, variable, found)
