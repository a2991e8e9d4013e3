"""Tables of any schemas as one block of bytes, copied once here and not at all at the other end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.state.memory_pools import PARCELS

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Parcel(Generic[H]):
    """One piece of a streamed reply: a small head and some tables."""

    head: H
    tables: dict[str, pa.Table]
    bytes: int
    """Of all tables together, as they came."""


PARCEL_SCHEMA = pa.schema([pa.field("parcel", pa.large_binary())])
"""Flight streams have one schema; ours carries one cell a batch."""

_ALIGNMENT = 64


def pack(tables: Mapping[str, pa.Table]) -> tuple[dict[str, int], pa.RecordBatch]:
    """Bytes of each table, and the batch to send."""
    sizes = {name: _size(table) for name, table in tables.items()}
    content = pa.allocate_buffer(sum(sizes.values()), memory_pool=PARCELS)
    sink = pa.FixedSizeBufferWriter(content)
    for name, table in tables.items():
        end = sink.tell() + sizes[name]
        _write(sink, table)
        sink.write(bytes(end - sink.tell()))
    offsets = pa.py_buffer(np.array([0, content.size], np.int64))
    cell = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, content])
    batch = pa.RecordBatch.from_arrays([cell], schema=PARCEL_SCHEMA)
    return sizes, batch


def unpack(head: H, sizes: Mapping[str, int], batch: pa.RecordBatch) -> Parcel[H]:
    """The parcel; its tables share the memory of the batch."""
    content = batch.column(0).buffers()[2]
    tables: dict[str, pa.Table] = {}
    start = 0
    for name, size in sizes.items():
        with pa.ipc.open_stream(content.slice(start, size)) as reader:
            tables[name] = reader.read_all()
        start += size
    return Parcel(head, tables, start)


def _size(table: pa.Table) -> int:
    sink = pa.MockOutputStream()
    _write(sink, table)
    return int(sink.size() + -sink.size() % _ALIGNMENT)


def _write(sink: Any, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
