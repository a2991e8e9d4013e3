"""Lookups of keys in the state of row operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from anabranch.model.keyspace import HASH
from anabranch.processor.contract import View
from anabranch.state.backend import Backend
from anabranch.state.contract import Sections
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import Record, RowLayout
from anabranch.state.rows.sections import export_records


def look_up(
    layout: RowLayout, backend: Backend, views: Mapping[int, View], keys: pa.Table
) -> Sections:
    """All state variables and timers of keys (HASH and the key columns) of some key groups."""
    hashes = keys.column(HASH).to_numpy()
    groups = layout.keyspace.group_of(hashes)
    columns = [column.chunk(0) for column in keys.combine_chunks().columns[1:]]
    wanted = layout.key.read(columns, len(hashes))
    found: list[tuple[Any, Record]] = []
    for group, (state, before) in views.items():
        rows = cast(RowGroupState, state)
        at = np.flatnonzero(groups == group).tolist()
        some = [wanted[i] for i in at]
        backend.bring_rows([rows], [len(at)], hashes[at].tolist())
        records = zip(some, rows.peek(some, before), strict=True)
        found += [(key, record) for key, record in records if record is not None]
    return export_records(layout, [key for key, _ in found], [record for _, record in found])
