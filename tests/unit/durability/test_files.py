"""Changelog and snapshot files: what is written comes back, what is damaged is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.changelog import decode_changelog, encode_changelog
from anabranch.durability.frame import MAGIC, size_and_crc
from anabranch.durability.snapshot import SnapshotReader, encode_snapshot
from anabranch.errors import CorruptState, FormatNotSupported, InvalidArgument
from anabranch.model.keyspace import HASH
from tests.unit.durability.samples import (
    SMALL,
    by_group,
    changes,
    entries,
    ordered_by_bin,
    random_hashes,
)

COMPRESSIONS = [None, "lz4", "zstd"]


def joined(buffers: list[Any]) -> Any:
    return pa.py_buffer(b"".join(buffers))


def sample_snapshot(compression: str | None = None) -> tuple[Any, dict[int, dict[str, pa.Table]]]:
    hashes = by_group(random_hashes(500), SMALL)
    groups = {
        group: {"value": entries(ordered_by_bin(inside, SMALL)), "list": entries(inside[:1])}
        for group, inside in hashes.items()
        if group != 3
    }
    groups[3] = {}
    return joined(encode_snapshot(groups, SMALL, compression)), groups


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_changelog_round_trip(compression: str | None) -> None:
    sections = {"a/ü": changes([1, 2, -3], [4]), "none": changes([]), "b": changes(range(1000))}
    content = joined(encode_changelog(sections, compression))
    decoded = decode_changelog(content)
    assert list(decoded) == ["a/ü", "b"]
    assert all(decoded[name].equals(sections[name]) for name in decoded)
    assert decode_changelog(joined(encode_changelog({}))) == {}


def test_chunked_and_sliced_tables_round_trip() -> None:
    table = pa.concat_tables([changes(range(10)), changes(range(10, 30))]).slice(5, 20)
    assert decode_changelog(joined(encode_changelog({"s": table})))["s"].equals(table)


def test_changelog_columns_keep_type_nulls_and_metadata() -> None:
    schema = pa.schema(
        [
            pa.field(HASH, pa.int64(), nullable=False),
            pa.field("when", pa.timestamp("us", "UTC"), metadata={b"spark.watermarkDelayMs": b"5"}),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    table = pa.table(
        [
            pa.array([1, 2]),
            pa.array([None, 5], schema.field(1).type),
            pa.array([None, None], schema.field(2).type),
            pa.array(["a", "b"]).dictionary_encode().cast(schema.field(3).type),
        ],
        schema=schema,
    )
    decoded = decode_changelog(joined(encode_changelog({"s": table})))["s"]
    assert decoded.equals(table, check_metadata=True)


def test_changelog_decoding_copies_nothing() -> None:
    content = joined(encode_changelog({"s": changes(range(1000))}))
    column = decode_changelog(content)["s"].column(HASH).chunk(0).buffers()[1]
    assert content.address <= column.address < content.address + content.size


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_snapshot_round_trip(compression: str | None) -> None:
    content, groups = sample_snapshot(compression)
    reader = SnapshotReader(content)
    assert reader.groups == tuple(range(8))
    for group, sections in groups.items():
        read = reader.read(group)
        assert list(read) == list(sections)
        assert all(read[name].equals(sections[name]) for name in read)
        assert all(table.column(0).num_chunks == 1 for table in read.values())


def test_snapshot_bins_are_read_alone() -> None:
    content, groups = sample_snapshot()
    reader = SnapshotReader(content)
    for group, sections in groups.items():
        for bins in ([], [0], [1, 2], [3, 0], range(4)):
            read = reader.read(group, bins)
            for name, table in sections.items():
                of_entry = SMALL.bin_of(table.column(HASH).to_numpy())
                expected = table.filter(pa.array(np.isin(of_entry, list(bins))))
                assert read.get(name, table.slice(0, 0)).equals(expected)


def test_snapshot_orders_entries_by_bin() -> None:
    hashes = by_group(random_hashes(300), SMALL)[2]
    reader = SnapshotReader(joined(encode_snapshot({2: {"s": entries(hashes)}}, SMALL)))
    together = [reader.read(2, [bin_])["s"] for bin_ in range(4)]
    assert reader.read(2)["s"].equals(pa.concat_tables(together))
    assert reader.read(2)["s"].column(HASH).to_pylist() == ordered_by_bin(hashes, SMALL)


def test_snapshot_in_a_store_is_read_by_ranges() -> None:
    content, groups = sample_snapshot()
    store = MemoryBlobStore()
    store.write("s", content)
    for prefetched in ([], [1], range(8)):
        reader = SnapshotReader(store, "s")
        reader.prefetch(prefetched)
        for group, sections in groups.items():
            read = reader.read(group)
            assert all(read[name].equals(sections[name]) for name in sections)


def test_snapshot_without_the_group_is_an_error() -> None:
    content, _ = sample_snapshot()
    with pytest.raises(CorruptState, match="key group 99"):
        SnapshotReader(content, name="f").read(99)


def test_size_and_checksum_identify_a_file() -> None:
    first, second = encode_changelog({"s": changes([1])}), encode_changelog({"s": changes([2])})
    assert size_and_crc(first)[0] == joined(first).size
    assert size_and_crc(first)[1] != size_and_crc(second)[1]
    decode_changelog(joined(first), "f", size_and_crc(first)[1])
    with pytest.raises(CorruptState, match="manifest"):
        decode_changelog(joined(first), "f", size_and_crc(second)[1])
    snapshot, _ = sample_snapshot()
    with pytest.raises(CorruptState, match="manifest"):
        SnapshotReader(snapshot, crc=1)


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="lz4"):
        encode_changelog({}, "rar")


def read_all_of_snapshot(content: bytes) -> None:
    reader = SnapshotReader(pa.py_buffer(content), name="the-file")
    for group in reader.groups:
        reader.read(group)


def read_all_of_stored_snapshot(content: bytes) -> None:
    store = MemoryBlobStore()
    store.write("the-file", content)
    reader = SnapshotReader(store, "the-file")
    reader.prefetch(reader.groups)
    for group in reader.groups:
        reader.read(group)


def read_all_of_changelog(content: bytes) -> None:
    decode_changelog(pa.py_buffer(content), "the-file")


def small_changelog() -> bytes:
    return b"".join(encode_changelog({"a": changes([1, 2], [3]), "b": changes([5])}))


def small_snapshot() -> bytes:
    groups = {1: {"a": entries([1, 9])}, 2: {"a": entries([2]), "b": entries([10])}}
    return b"".join(encode_snapshot(groups, SMALL))


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
    newer = content[:8] + struct.pack("<I", 2) + content[12:]
    with pytest.raises(FormatNotSupported, match=r"the-file has format 2.*newer"):
        read_all(newer)
