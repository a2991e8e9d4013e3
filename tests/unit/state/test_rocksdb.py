"""The parts of the backend "rocksdb": values as bytes, namespaces, memory, settings."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument, LocationError, LocationNotWritable
from anabranch.model.keyspace import KeySpace
from anabranch.state import backend
from anabranch.state.backend import check_backend
from anabranch.state.columnar.layout import ColumnarLayout
from anabranch.state.rocksdb.database import Database, Namespace
from anabranch.state.rocksdb.records import RecordCodec

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), [None, "", "a", "b" * 300]),
    "large binary": (pa.large_binary(), [b"", None, b"\x00\xff"]),
    "list": (pa.list_(pa.string()), [None, [], [None], ["a", "", "bc"]]),
    "large list": (pa.large_list(pa.bool_()), [[True, None], [], [False]]),
    "fixed list": (pa.list_(pa.int16(), 2), [[1, 2], None, [None, 3]]),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]),
        [None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": [0.0, None]}],
    ),
    "empty struct": (pa.struct([]), [{}, None]),
    "map": (pa.map_(pa.string(), pa.date32()), [[("a", datetime.date(2020, 1, 1))], [], None]),
    "decimal": (pa.decimal256(60, 2), [Decimal("1.00"), None]),
    "null": (pa.list_(pa.null()), [[None, None], [], None]),
    "deep": (
        pa.list_(pa.struct([("m", pa.map_(pa.int8(), pa.list_(pa.string())))])),
        [[{"m": [(1, ["x", None])]}, None], [{"m": None}], []],
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_entries_to_bytes_and_back(name: str) -> None:
    kind, values = COLUMNS[name]
    layout = ColumnarLayout(
        pa.schema([("k", pa.int64())]), pa.schema([("s", kind), ("t", pa.string())])
    )
    codec = RecordCodec(layout)
    rng = np.random.default_rng(1)
    size = 200
    chosen = [values[i] for i in rng.integers(0, len(values), size)]
    column = pa.array([None, *chosen], kind).slice(1)  # with an offset
    texts = pa.array([f"{i}" * (i % 5) for i in range(size)])
    raw = rng.integers(0, 256, (size, layout.raw.itemsize), np.uint8).view(layout.raw).reshape(-1)
    hashes = np.sort(rng.integers(0, 80, size))  # with entries of the same hash
    columns = [column, texts]
    found, encoded = codec.encode(hashes, raw, columns[: len(layout.arena_parts)])
    assert found.tolist() == sorted(set(hashes.tolist()))
    # Values that were written at different times come back together.
    order = rng.permutation(len(found))
    counts, raw_again, columns_again = codec.decode([encoded[i] for i in order])
    assert np.array_equal(counts, np.bincount(hashes)[found[order]])
    rows = np.concatenate([np.flatnonzero(hashes == hash_) for hash_ in found[order]])
    assert np.array_equal(raw_again.view(np.uint8), raw[rows].view(np.uint8))
    for before, after in zip(columns, columns_again, strict=False):
        after.validate(full=True)
        assert after.to_pylist() == before.take(pa.array(rows)).to_pylist()


def test_a_type_that_cannot_be_kept() -> None:
    kind = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    with pytest.raises(InvalidArgument, match='backend="memory"'):
        RecordCodec(ColumnarLayout(pa.schema([]), pa.schema([("s", kind)])))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(str(tmp_path), 32 << 20, working_bytes_max=1000)
    yield made
    made.close()
    assert not list(tmp_path.iterdir())


def put(space: Namespace, hashes: Any, value: bytes = b"v") -> None:
    none = np.empty(0, np.int64)
    space.put(np.array(hashes, np.int64), [value] * len(hashes), none, (), ())


def test_a_bin_is_a_range(database: Database) -> None:
    spaces = [Namespace(database, KeySpace(2, 4)) for _ in range(3)]
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 500)
    for space in spaces:
        put(space, hashes)
    for bins in ([0], [1, 3], [0, 1, 2, 3]):
        found, values = spaces[1].scan(bins)
        of_hash = KeySpace(2, 4).bin_of(hashes)
        assert sorted(found.tolist()) == sorted(hashes[np.isin(of_hash, bins)].tolist())
        assert len(values) == len(found)
    spaces[1].delete_bins([1, 2])
    assert set(KeySpace(2, 4).bin_of(spaces[1].scan(range(4))[0])) == {0, 3}
    assert all(len(space.scan(range(4))[0]) == 500 for space in (spaces[0], spaces[2]))


def test_times_are_in_order(database: Database) -> None:
    space = Namespace(database, KeySpace(1, 1))
    times = np.array([5, -3, 2**63 - 1, -(2**63), 0, 7], np.int64)
    hashes = np.arange(6) - 3
    database.write(space.hints_of(1, times, hashes), [b""] * 6)
    database.write(space.hints_of(2, times, hashes), [b""] * 6)
    found, of_hash, later = space.due(1, 5)
    assert found.tolist() == [-(2**63), -3, 0, 5]
    assert of_hash.tolist() == [0, -2, 1, -3]
    assert later == 7
    assert len(space.due(1, 2**63 - 1)[0]) == 6
    assert space.due(1, 2**63 - 1)[2] is None
    assert space.due(3, 2**63 - 1)[2] is None


def test_what_nobody_refers_to_is_deleted(database: Database) -> None:
    space, other = (Namespace(database, KeySpace(1, 1)) for _ in range(2))
    put(space, [1, 2])
    put(other, [1, 2])
    assert database.note_working_set(space.number, 2000)
    keys = space.keys_of(np.array([1, 2]))
    assert database.get(keys) == [b"v", b"v"]
    del space
    gc.collect()
    assert not database.note_working_set(other.number, 500), "its memory is free again"
    put(other, [3])
    assert database.get(keys) == [None, None]
    assert len(other.scan([0])[0]) == 3


def test_working_sets_share_the_limit(database: Database) -> None:
    one, two = (Namespace(database, KeySpace(1, 1)) for _ in range(2))
    assert not database.note_working_set(one.number, 900)
    assert database.note_working_set(two.number, 200)
    assert not database.note_working_set(one.number, 0)
    assert not database.note_working_set(two.number, 1000)
    assert database.note_working_set(two.number, 1001)


def test_a_failed_write_says_what_to_do(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def write(self, *_: object) -> None:
            raise Exception("IO error: No space left on device")

        get = items = delete_range = write

    space, gone = (Namespace(database, KeySpace(1, 1)) for _ in range(2))
    put(gone, [7])
    keys = gone.keys_of(np.array([7]))
    del gone
    gc.collect()
    with monkeypatch.context() as patch:
        patch.setattr(database, "_db", Full())
        with pytest.raises(LocationNotWritable, match="local_dir"):
            put(space, [1])
        with pytest.raises(LocationNotWritable, match="local_dir"):
            space.delete_bins([0])
        for read in (lambda: space.scan([0]), lambda: database.get(keys)):
            with pytest.raises(LocationError, match="cannot be read"):
                read()
    put(space, [1])
    assert database.get(keys) == [None], "what nobody refers to is deleted later"


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check_backend("memory", 1 << 30, None)
    check_backend("rocksdb", 32 << 20, "/data")
    with pytest.raises(InvalidArgument, match="memory, rocksdb"):
        check_backend("redis", 1 << 30, None)
    with pytest.raises(InvalidArgument, match="at least 32 MiB"):
        check_backend("rocksdb", 1000, None)
    with pytest.raises(InvalidArgument, match="local_dir must be a folder"):
        check_backend("rocksdb", 1 << 30, 5)
    with pytest.raises(InvalidArgument, match="local_dir cannot be obeyed"):
        check_backend("memory", 1 << 30, "/data")
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    check_backend("memory", 1 << 30, None)
    with pytest.raises(InvalidArgument, match=r"pip install '\.\[rocksdb\]'"):
        check_backend("rocksdb", 1 << 30, None)
