"""Changelogs: sorted, typed, and what is written comes back."""

from __future__ import annotations

import pyarrow as pa
from tests.unit.durability.samples import (
    SMALL,
    changes,
    joined,
    random_hashes,
)

from anabranch.durability.changelog import decode_changelog, encode_changelog
from anabranch.model.keyspace import HASH


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
