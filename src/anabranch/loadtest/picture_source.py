"""Which file a picture was drawn from: the file's SHA-256, in a text chunk of the PNG."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

KEYWORD = "Drawn from SHA-256"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER, _TEXT = b"IHDR", b"tEXt"


def sha256_of(path: Path) -> str:
    """Of a file's bytes, as `sha256sum` tells it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def note_source(picture: Path, source: Path | None) -> None:
    """Write into a picture what it was drawn from; nothing if its runs were not kept in a file."""
    if source is None:
        return
    made = bytearray(_SIGNATURE)
    for kind, content in _chunks(picture.read_bytes()):
        if not _is_source(kind, content):
            made += _chunk(kind, content)
        if kind == _HEADER:
            made += _chunk(_TEXT, f"{KEYWORD}\0{sha256_of(source)}".encode("latin-1"))
    picture.write_bytes(made)


def source_of(picture: Path) -> str | None:
    """The SHA-256 of the file that a picture was drawn from; None: it does not say."""
    for kind, content in _chunks(picture.read_bytes()):
        if _is_source(kind, content):
            return content.decode("latin-1").partition("\0")[2]
    return None


def _is_source(kind: bytes, content: bytes) -> bool:
    return kind == _TEXT and content.startswith(f"{KEYWORD}\0".encode("latin-1"))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kinds and contents, in their order."""
    assert png.startswith(_SIGNATURE), "not a PNG"
    at = len(_SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
