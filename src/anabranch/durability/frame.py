"""File format of state sections: checksummed Arrow IPC blocks between a header and a footer.

header   magic (8), format version (u32), kind (4 letters), zeros up to 64 bytes
blocks   each an Arrow IPC stream, padded to 64 bytes; the padding is part of the block
footer   JSON: kind, meta, blocks [offset, length, crc32]
tail     footer length (u64), crc32 of the footer (u32), format version (u32), magic (8)

The tail's checksum covers the footer, which covers the blocks: it identifies the whole file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.errors import CorruptState, FormatNotSupported, InvalidArgument

VERSION = 1
MAGIC = b"ANABR\r\n\x1a"  # line ends: a transfer in text mode shows
_ALIGNMENT = 64
_HEADER = struct.Struct("<8sI4s48x")
_TAIL = struct.Struct("<QII8s")
TAIL_BYTES = _TAIL.size
HEADER_BYTES = _HEADER.size


@dataclass(frozen=True, slots=True)
class Block:
    """Where one table lies in the file."""

    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file holds: the writer's `meta` and the place of every block."""

    meta: Any
    blocks: tuple[Block, ...]
    crc: int


class FrameWriter:
    """Collects tables into the buffers of one file."""

    def __init__(self, kind: bytes, compression: str | None = None) -> None:
        assert len(kind) == 4
        self._kind = kind
        self._options = _write_options(compression)
        self._buffers: list[Any] = [pa.py_buffer(_HEADER.pack(MAGIC, VERSION, kind))]
        self._offset = HEADER_BYTES
        self._blocks: list[Block] = []

    def add(self, table: pa.Table) -> int:
        """Append a table; returns its block number."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=self._options) as writer:
            writer.write_table(table)
        sink.write(bytes(-sink.tell() % _ALIGNMENT))
        content = sink.getvalue()
        self._buffers.append(content)
        self._blocks.append(Block(self._offset, content.size, zlib.crc32(content)))
        self._offset += content.size
        return len(self._blocks) - 1

    def finish(self, meta: Any) -> list[Any]:
        """The whole file as buffers."""
        footer = json.dumps(
            {
                "kind": self._kind.decode(),
                "meta": meta,
                "blocks": [[block.offset, block.length, block.crc] for block in self._blocks],
            },
            separators=(",", ":"),
        ).encode()
        tail = _TAIL.pack(len(footer), zlib.crc32(footer), VERSION, MAGIC)
        return [*self._buffers, pa.py_buffer(footer + tail)]


def size_and_crc(buffers: Sequence[Any]) -> tuple[int, int]:
    """Length in bytes and identifying checksum of a finished file."""
    crc: int = _TAIL.unpack(bytes(memoryview(buffers[-1])[-TAIL_BYTES:]))[1]
    return sum(memoryview(buffer).nbytes for buffer in buffers), crc


def check_header(header: bytes, kind: bytes, name: str) -> None:
    """Refuse a file that is not ours, is of another kind, or is newer than this release."""
    if len(header) < HEADER_BYTES or header[:8] != MAGIC:
        raise damaged(name, "it does not start like a state file")
    version = struct.unpack_from("<I", header, 8)[0]
    if version > VERSION:
        raise FormatNotSupported(
            f"{name} has format {version}, this release reads up to {VERSION}. "
            "Use the release of Anabranch that wrote it, or a newer one."
        )
    if header != _HEADER.pack(MAGIC, VERSION, kind):
        raise damaged(name, f"its header is not that of a {kind.decode()!r} file")


def footer_length(tail: bytes, file_bytes: int, name: str) -> int:
    """Length of the footer, from the last TAIL_BYTES of the file."""
    if len(tail) < TAIL_BYTES or file_bytes < HEADER_BYTES + TAIL_BYTES:
        raise damaged(name, f"it is truncated to {file_bytes} bytes")
    length, _, version, magic = _TAIL.unpack(tail)
    if magic != MAGIC or version != VERSION or length > file_bytes - HEADER_BYTES - TAIL_BYTES:
        raise damaged(name, "its end is missing or damaged")
    return int(length)


def parse_footer(content: bytes, file_bytes: int, kind: bytes, name: str) -> Footer:
    """The footer from the file's last bytes (footer and tail)."""
    _, crc, _, _ = _TAIL.unpack(content[-TAIL_BYTES:])
    text = content[:-TAIL_BYTES]
    if zlib.crc32(text) != crc:
        raise damaged(name, "its footer does not match its checksum")
    try:
        parsed = json.loads(text)
        blocks = tuple(Block(*entry) for entry in parsed["blocks"])
        footer = Footer(parsed["meta"], blocks, crc)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(name, "its footer cannot be read") from error
    expected = HEADER_BYTES
    for block in blocks:
        if block.offset != expected:
            raise damaged(name, "its blocks are not where its footer says")
        expected += block.length
    if expected + len(content) != file_bytes or parsed.get("kind") != kind.decode():
        raise damaged(name, "its length or kind is not what its footer says")
    return footer


def open_frame(content: Any, kind: bytes, name: str) -> Footer:
    """Check header and footer of a whole file in memory."""
    size = content.size
    tail = content.slice(max(0, size - TAIL_BYTES)).to_pybytes()
    # The header first: a foreign or newer file is named as such, whatever its end looks like.
    check_header(content.slice(0, min(HEADER_BYTES, size)).to_pybytes(), kind, name)
    start = size - TAIL_BYTES - footer_length(tail, size, name)
    return parse_footer(content.slice(start).to_pybytes(), size, kind, name)


def read_block(content: Any, block: Block, name: str) -> pa.Table:
    """Check and open one block; `content` holds exactly the block. The table shares its memory."""
    if content.size != block.length or zlib.crc32(content) != block.crc:
        raise damaged(name, f"the block at byte {block.offset} does not match its checksum")
    try:
        with pa.ipc.open_stream(content) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise damaged(name, f"the block at byte {block.offset} cannot be read") from error


def damaged(name: str, what: str) -> CorruptState:
    """The error for a file whose content is not what was written."""
    return CorruptState(
        f"State file {name} is damaged: {what}. Restore this file from a backup of the state "
        "location, or start the query with a new state location and checkpoint."
    )


def _write_options(compression: str | None) -> Any:
    try:
        return pa.ipc.IpcWriteOptions(compression=compression)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(
            f"Unknown compression {compression!r}. Use None, 'lz4' or 'zstd'."
        ) from error
