"""Changelog and snapshot files: what is written comes back, what is damaged is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.durability.samples import (
    SMALL,
    by_group,
    changes,
    entries,
    in_order,
    random_hashes,
)

from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.changelog import decode_changelog, encode_changelog
from anabranch.durability.frame import MAGIC, size_and_crc
from anabranch.durability.group_restore import read_groups
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT, encode_snapshot
from anabranch.errors import CorruptState, FormatNotSupported
from anabranch.model.keyspace import HASH, KeySpace

DUE = ("a", "count")


def joined(buffers: list[Any]) -> Any:
    return pa.py_buffer(b"".join(buffers))


def sample_snapshot() -> tuple[Any, dict[int, dict[str, pa.Table]]]:
    hashes = by_group(random_hashes(500), SMALL)
    groups = {
        group: {"value": entries(in_order(inside, SMALL)), "list": entries(inside[:1])}
        for group, inside in hashes.items()
        if group != 3
    }
    groups[3] = {}
    return joined(encode_snapshot(groups, SMALL)), groups


def of_group(file: PageFile, group: int, bins: Any = None) -> dict[str, pa.Table]:
    sections = read_groups(file, SNAPSHOT, [group], bins, SMALL)
    return {name: table for name, table in sections.items() if table.num_rows}


def test_changelog_round_trip() -> None:
    sections = {"a/ü": changes([1, 2, -3], [4]), "none": changes([]), "b": changes(range(1000))}
    content = joined(encode_changelog(sections))
    decoded = decode_changelog(content)
    assert list(decoded) == ["a/ü", "b"]
    assert all(decoded[name].equals(sections[name]) for name in decoded)
    assert decode_changelog(joined(encode_changelog({}))) == {}


def test_changelog_is_sorted_and_keeps_the_order_of_a_key() -> None:
    hashes = random_hashes(3000)
    first, second = changes(hashes[::-1], value=1), changes(hashes[::3], value=2)
    read = decode_changelog(
        joined(encode_changelog({"s": pa.concat_tables([first, second])}, SMALL))
    )
    found = read["s"].column(HASH).to_pylist()
    assert found == sorted(found, key=lambda hash_: (hash_ % 8, hash_))
    last = {row[HASH]: row["count"] for row in read["s"].to_pylist()}
    assert last == dict.fromkeys(hashes, 1) | dict.fromkeys(hashes[::3], 2)


def test_chunked_and_sliced_tables_round_trip() -> None:
    table = pa.concat_tables([changes(range(10)), changes(range(10, 30))]).slice(5, 20)
    assert decode_changelog(joined(encode_changelog({"s": table})))["s"].equals(table)


def test_changelog_columns_keep_type_nulls_and_metadata() -> None:
    schema = pa.schema(
        [
            pa.field(HASH, pa.int64(), nullable=False),
            pa.field("when", pa.timestamp("us", "UTC"), metadata={b"spark.watermarkDelayMs": b"5"}),
            pa.field("price", pa.decimal128(10, 2)),
        ]
    )
    table = pa.table(
        [
            pa.array([1, 2]),
            pa.array([None, 5], schema.field(1).type),
            pa.array([None, None], schema.field(2).type),
        ],
        schema=schema,
    )
    decoded = decode_changelog(joined(encode_changelog({"s": table})))["s"]
    assert decoded.equals(table, check_metadata=True)


def test_changelog_decoding_copies_nothing() -> None:
    content = joined(encode_changelog({"s": changes(range(1000))}))
    column = decode_changelog(content)["s"].column(HASH).chunk(0).buffers()[1]
    assert content.address <= column.address < content.address + content.size


def test_snapshot_round_trip() -> None:
    content, groups = sample_snapshot()
    store = MemoryBlobStore()
    store.write("s", content)
    for file in (PageFile(SNAPSHOT, content), PageFile(SNAPSHOT, store, "s")):
        assert file.meta["groups"] == list(range(8))
        for group, sections in groups.items():
            read = of_group(file, group)
            assert list(read) == list(sections)
            assert all(read[name].equals(sections[name]) for name in read)


def test_snapshot_bins_are_read_alone() -> None:
    content, groups = sample_snapshot()
    file = PageFile(SNAPSHOT, content)
    for group, sections in groups.items():
        for bins in ([], [0], [1, 2], [3, 0], range(4)):
            read = of_group(file, group, bins)
            for name, table in sections.items():
                of_entry = SMALL.bin_of(table.column(HASH).to_numpy())
                expected = table.filter(pa.array(np.isin(of_entry, list(bins))))
                assert read.get(name, table.slice(0, 0)).equals(expected)


def test_snapshot_gets_ordered() -> None:
    hashes = by_group(random_hashes(300), SMALL)[2]
    file = PageFile(SNAPSHOT, joined(encode_snapshot({2: {"s": entries(hashes)}}, SMALL)))
    together = [of_group(file, 2, [bin_])["s"] for bin_ in range(4)]
    assert of_group(file, 2)["s"].equals(pa.concat_tables(together))
    assert of_group(file, 2)["s"].column(HASH).to_pylist() == in_order(hashes, SMALL)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.sampled_from([KeySpace(8, 4), KeySpace(1, 1), KeySpace(3, 5), KeySpace(1, 7)]),
    st.booleans(),
)
def test_order_follows_group_bin_and_hash(
    numbers: list[int], keyspace: KeySpace, by_bin: bool
) -> None:
    hashes = np.array([*numbers, -(2**63), 2**63 - 1, 0, -1], np.int64)
    groups, bins = keyspace.group_of(hashes), keyspace.bin_of(hashes)
    order = keyspace.order_of(hashes, by_bin)
    by_key = order[np.lexsort((hashes, bins * by_bin, groups))]
    assert not np.any(by_key[1:] < by_key[:-1])
    for group, bin_, own in zip(groups.tolist(), bins.tolist(), order.tolist(), strict=True):
        (first,), (last,) = keyspace.order_ranges([group], [bin_] if by_bin else None, by_bin)
        assert first <= own <= last


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
