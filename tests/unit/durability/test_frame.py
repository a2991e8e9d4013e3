"""The frame of every file of state: what is damaged, foreign or of another format is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.unit.durability.samples import (
    SMALL,
    changes,
    entries,
    joined,
    sample_snapshot,
)

from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.changelog import decode_changelog, encode_changelog
from anabranch.durability.frame import MAGIC, size_and_crc
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT, encode_snapshot
from anabranch.errors import CorruptState, FormatNotSupported

DUE = ("a", "count")


def read_all_of_snapshot(content: bytes) -> None:
    read_all(PageFile(SNAPSHOT, pa.py_buffer(content), name="the-file"))


def read_all_of_stored_snapshot(content: bytes) -> None:
    store = MemoryBlobStore()
    store.write("the-file", content)
    read_all(PageFile(SNAPSHOT, store, "the-file"))


def read_all(file: PageFile) -> None:
    for section in file.sections:
        file.read(section)
    file.due(DUE, 0, 2**62)


def read_all_of_changelog(content: bytes) -> None:
    decode_changelog(pa.py_buffer(content), "the-file")


def small_changelog() -> bytes:
    sections = {"a": changes([1, 2], [3]), "b": changes([5])}
    return b"".join(encode_changelog(sections, SMALL))


def small_snapshot() -> bytes:
    groups = {1: {"a": entries([1, 9])}, 2: {"a": entries([2]), "b": entries([10])}}
    return b"".join(encode_snapshot(groups, SMALL, DUE))


KINDS = pytest.mark.parametrize(
    ("content", "read_all"),
    [
        (small_changelog(), read_all_of_changelog),
        (small_snapshot(), read_all_of_snapshot),
        (small_snapshot(), read_all_of_stored_snapshot),
    ],
    ids=["changelog", "snapshot", "stored-snapshot"],
)

ReadAll = Callable[[bytes], None]


def test_size_and_checksum_identify_a_file() -> None:
    first, second = encode_changelog({"s": changes([1])}), encode_changelog({"s": changes([2])})
    assert size_and_crc(first)[0] == joined(first).size
    assert size_and_crc(first)[1] != size_and_crc(second)[1]
    decode_changelog(joined(first), "f", size_and_crc(first)[1])
    with pytest.raises(CorruptState, match="manifest"):
        decode_changelog(joined(first), "f", size_and_crc(second)[1])
    snapshot, _ = sample_snapshot()
    with pytest.raises(CorruptState, match="manifest"):
        PageFile(SNAPSHOT, snapshot, crc=1)


@KINDS
def test_every_flipped_byte_is_found(content: bytes, read_all: ReadAll) -> None:
    read_all(content)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        with pytest.raises((CorruptState, FormatNotSupported), match="the-file"):
            read_all(bytes(damaged))


@KINDS
def test_every_truncation_is_found(content: bytes, read_all: ReadAll) -> None:
    for length in range(0, len(content), 3):
        with pytest.raises(CorruptState, match="the-file"):
            read_all(content[:length])
        with pytest.raises(CorruptState, match="the-file"):
            read_all(content[length + 1 :])


@KINDS
def test_appended_and_doubled_files_are_found(content: bytes, read_all: ReadAll) -> None:
    for longer in (content + b"\0", content + content, content + bytes(64)):
        with pytest.raises(CorruptState):
            read_all(longer)


@KINDS
def test_foreign_files_are_refused(content: bytes, read_all: ReadAll) -> None:
    other = small_snapshot() if read_all is read_all_of_changelog else small_changelog()
    for foreign in (b"", b"PAR1" * 100, b"{}", other, bytes(1000)):
        with pytest.raises(CorruptState, match="the-file"):
            read_all(foreign)


@KINDS
def test_a_newer_format_says_so(content: bytes, read_all: ReadAll) -> None:
    assert content.startswith(MAGIC)
    newer = content[:8] + struct.pack("<I", 3) + content[12:]
    with pytest.raises(FormatNotSupported, match=r"the-file has format 3.*newer"):
        read_all(newer)


@KINDS
def test_an_earlier_format_says_so(content: bytes, read_all: ReadAll) -> None:
    earlier = content[:8] + struct.pack("<I", 1) + content[12:]
    with pytest.raises(FormatNotSupported, match=r"the-file has format 1 of an earlier release"):
        read_all(earlier)
