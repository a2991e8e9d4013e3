"""Keys and hashes as text, for control messages."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa

from anabranch.model.keyspace import Int64s


def pack_keys(keys: pa.Table) -> str:
    """Keys inside a message."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_table(keys)
    return base64.b64encode(sink.getvalue()).decode()


def unpack_keys(text: str) -> pa.Table:
    """The reverse."""
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_all()


def pack_hashes(hashes: Int64s) -> str:
    """Hashes inside a message."""
    return base64.b64encode(np.ascontiguousarray(hashes, np.int64).tobytes()).decode()


def unpack_hashes(text: str) -> Int64s:
    """The reverse."""
    return np.frombuffer(base64.b64decode(text), np.int64)
