"""Tables of any schemas as one block of bytes, copied once here and not at all at the other end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.state.memory_pools import PARCELS
from anabranch.transport.wire import Message

PARCEL_SCHEMA = pa.schema([pa.field("parcel", pa.large_binary())])
"""Flight streams have one schema; ours carries one cell a batch."""

TABLES = "tables"
"""Where the head of an item says which tables its parcel holds: name and bytes of each."""

_ALIGNMENT = 64


def pack(head: Message, tables: Mapping[str, pa.Table]) -> tuple[Message, pa.RecordBatch]:
    """The head with the list of tables, and the batch to send."""
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
    return {**head, TABLES: list(sizes.items())}, batch


def unpack(head: Message, batch: pa.RecordBatch) -> dict[str, pa.Table]:
    """The tables; they share the memory of the batch."""
    content = batch.column(0).buffers()[2]
    tables: dict[str, pa.Table] = {}
    start = 0
    for name, size in head.get(TABLES, ()):
        with pa.ipc.open_stream(content.slice(start, size)) as reader:
            tables[name] = reader.read_all()
        start += size
    return tables


def parcel_bytes(head: Message) -> int:
    """Bytes of all tables of an item."""
    return sum(size for _, size in head.get(TABLES, ()))


def _size(table: pa.Table) -> int:
    sink = pa.MockOutputStream()
    _write(sink, table)
    return int(sink.size() + -sink.size() % _ALIGNMENT)


def _write(sink: Any, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
