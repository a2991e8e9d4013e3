"""Beginning and end of a state file; between them are the pages of `durability/pages.py`.

header   magic (8), format version (u32), kind (4 letters), zeros up to 64 bytes
pages    entries of the sections
indexes  an Arrow IPC stream for each section: where its pages are
footer   JSON: kind, meta, indexes [section, offset, length, crc32]
tail     footer length (u64), crc32 of the footer (u32), format version (u32), magic (8)

The tail's checksum covers the footer, which covers the indexes, which cover the pages:
it identifies the whole file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.errors import CorruptState, FormatNotSupported

VERSION = 2
MAGIC = b"ANABR\r\n\x1a"  # line ends: a transfer in text mode shows
_HEADER = struct.Struct("<8sI4s48x")
_TAIL = struct.Struct("<QII8s")
TAIL_BYTES = _TAIL.size
HEADER_BYTES = _HEADER.size


@dataclass(frozen=True, slots=True)
class Block:
    """Where a section's index lies in the file."""

    section: str
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file holds: the writer's `meta` and the place of every index."""

    meta: Any
    indexes: tuple[Block, ...]
    crc: int
    pages_end: int
    """Where the indexes begin."""


def header_of(kind: bytes) -> bytes:
    """The first bytes of a file."""
    assert len(kind) == 4
    return _HEADER.pack(MAGIC, VERSION, kind)


def footer_of(kind: bytes, meta: Any, indexes: Sequence[Block]) -> bytes:
    """The last bytes of a file: footer and tail."""
    footer = json.dumps(
        {
            "kind": kind.decode(),
            "meta": meta,
            "indexes": [[b.section, b.offset, b.length, b.crc] for b in indexes],
        },
        separators=(",", ":"),
    ).encode()
    return footer + _TAIL.pack(len(footer), zlib.crc32(footer), VERSION, MAGIC)


def size_and_crc(buffers: Sequence[Any]) -> tuple[int, int]:
    """Length in bytes and identifying checksum of a finished file."""
    crc: int = _TAIL.unpack(bytes(memoryview(buffers[-1])[-TAIL_BYTES:]))[1]
    return sum(memoryview(buffer).nbytes for buffer in buffers), crc


def check_header(header: bytes, kind: bytes, name: str) -> None:
    """Refuse a file that is not ours, is of another kind, or of another format."""
    if len(header) < HEADER_BYTES or header[:8] != MAGIC:
        raise damaged(name, "it does not start like a state file")
    version = struct.unpack_from("<I", header, 8)[0]
    if version > VERSION:
        raise FormatNotSupported(
            f"{name} has format {version}, this release reads {VERSION}. "
            "Use the release of Anabranch that wrote it, or a newer one."
        )
    if version < VERSION:
        raise FormatNotSupported(
            f"{name} has format {version} of an earlier release, this one reads {VERSION}. "
            "Use the release of Anabranch that wrote it, or a new state location and checkpoint."
        )
    if header != header_of(kind):
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
        indexes = tuple(Block(*entry) for entry in parsed["indexes"])
        meta, found_kind = parsed["meta"], parsed["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(name, "its footer cannot be read") from error
    start = file_bytes - len(content)
    pages_end = start - sum(block.length for block in indexes)
    expected = pages_end
    for block in indexes:
        if block.offset != expected:
            raise damaged(name, "its indexes are not where its footer says")
        expected += block.length
    if pages_end < HEADER_BYTES or found_kind != kind.decode():
        raise damaged(name, "its length or kind is not what its footer says")
    return Footer(meta, indexes, crc, pages_end)


def damaged(name: str, what: str) -> CorruptState:
    """The error for a file whose content is not what was written."""
    return CorruptState(
        f"State file {name} is damaged: {what}. Restore this file from a backup of the state "
        "location, or start the query with a new state location and checkpoint."
    )
