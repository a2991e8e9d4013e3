"""Files with large values: the same entries in the same order, and no copies on the way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.durability.large import Keeper
from tests.unit.durability.samples import SMALL, joined
from tests.unit.processor.rows.support import Service, define

from anabranch.durability.changelog import CHANGELOG, decode_changelog, encode_changelog
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import encode_snapshot
from anabranch.model.keyspace import DELETE, HASH, OP, UPSERT, KeySpace
from anabranch.state.large_values import LARGE_BYTES, view_of


def entries(hashes: list[int], sizes: list[int]) -> pa.Table:
    """A piece for each entry; those with large values look at them."""
    tables = []
    for number, (hashed, size) in enumerate(zip(hashes, sizes, strict=True)):
        value = [bytes([number % 256]) * size]
        array = view_of(value, pa.binary())
        array = pa.array(value, pa.binary()) if array is None else array
        op = pa.array([DELETE if size == 0 else UPSERT], pa.uint8())
        time = pa.array([None if size == 0 else number], pa.int64())
        tables.append(pa.table({HASH: [hashed], OP: op, "at": time, "v": array}))
    return pa.concat_tables(tables)


CHANCE = np.random.default_rng(3)
HASHES = [int(h) for h in CHANCE.integers(-50, 50, 200)]
SIZES = [int(s) for s in CHANCE.choice([0, 10, 50_000, LARGE_BYTES, LARGE_BYTES + 1], 200)]


@pytest.mark.parametrize("keyspace", [SMALL, None])
def test_entries_are_those_of_a_file_without_pieces(keyspace: KeySpace | None) -> None:
    table, due = entries(HASHES, SIZES), ("s", "at")
    content = joined(encode_changelog({"s": table}, keyspace, due))
    plain = joined(encode_changelog({"s": table.take(np.arange(len(table)))}, keyspace, due))
    assert decode_changelog(content)["s"].equals(decode_changelog(plain)["s"])
    found, other = PageFile(CHANGELOG, content), PageFile(CHANGELOG, plain)
    assert found.due(due, 5, 90).tolist() == other.due(due, 5, 90).tolist()
    if keyspace is not None:
        order = keyspace.order_of(np.array(HASHES[:1], np.int64), False)
        index = found.sections["s"]
        one = found.read("s", index.overlapping(order, order))
        wanted = table.filter(pa.array(np.array(HASHES) == HASHES[0]))
        got = one.filter(pa.array(one.column(HASH).to_numpy() == HASHES[0]))
        assert got.column("v").to_pylist() == wanted.column("v").to_pylist()


def test_nothing_is_copied() -> None:
    table = entries([3, 1, 2, 1], [8 << 20] * 4)
    before, most = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()
    buffers = encode_changelog({"s": table}, SMALL)
    assert sum(len(buffer) for buffer in buffers) > 32 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert pa.default_memory_pool().max_memory() - max(before, most) < 1 << 20


@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize("ttl_ms", [None, 1000])
def test_state_with_large_values_goes_into_files_and_back(kind: str, ttl_ms: int | None) -> None:
    definition = define(
        Keeper(kind, ttl_ms), "k long, size long", ["k"], "k long", "processingtime"
    )
    worker = Service(definition).with_types("k long, size long")
    for sizes in ([5, 4 << 20, 7, 4 << 20], [4 << 20, 4 << 20, -1, 6]):
        before = worker.content()
        held = pa.total_allocated_bytes()
        worker.batch(list(enumerate(sizes)))
        file = encode_changelog(worker.changes[-1], worker.keyspace)
        snapshot = encode_snapshot(worker.snapshot(), worker.keyspace)
        assert pa.total_allocated_bytes() - held < 1 << 20  # of 8 MB and more
        assert worker.content() != before
    for content in (file, snapshot):
        assert sum(len(buffer) for buffer in content) > 8 << 20
    again = Service(definition)
    for changes in worker.changes:
        sections = decode_changelog(joined(encode_changelog(changes, worker.keyspace)))
        for group, state in again.states.items():
            of_group = {
                name: table.filter(
                    pa.array(again.keyspace.group_of(table.column(HASH).to_numpy()) == group)
                )
                for name, table in sections.items()
            }
            state.replay(of_group)
    assert again.content() == worker.content()
