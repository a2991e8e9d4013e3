"""Loading key groups: the right entries, in order, each file read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.durability.samples import (
    SMALL,
    DictState,
    by_group,
    changes,
    entries,
    ordered_by_bin,
    random_hashes,
)

from anabranch.durability.blobs import BlobStore, MemoryBlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.group_restore import load_groups, split_by_group
from anabranch.durability.manifest import FileRef, Manifest, file_ref
from anabranch.durability.manifest_content import Content
from anabranch.durability.snapshot import encode_snapshot
from anabranch.model.keyspace import HASH, KeySpace


def manifest(
    snapshots: list[FileRef], changelogs: list[FileRef], keyspace: KeySpace = SMALL
) -> Manifest:
    return Manifest("op", None, 9, keyspace, {}, Content.of(changelogs, snapshots), 0)


def write_snapshot(store: BlobStore, path: str, hashes: list[int], value: int) -> FileRef:
    groups = {
        group: {"s": entries(ordered_by_bin(inside, SMALL), value)}
        for group, inside in by_group(hashes, SMALL).items()
    }
    buffers = encode_snapshot(groups, SMALL)
    store.write(path, buffers)
    return file_ref(path, 0, buffers, groups)


def write_changelog(store: BlobStore, path: str, epoch: int, table: Any) -> FileRef:
    buffers = encode_changelog({"s": table}, SMALL)
    store.write(path, buffers)
    return file_ref(path, epoch, buffers, range(SMALL.groups))


@pytest.mark.parametrize("is_local", [True, False])
def test_snapshot_then_changelogs_in_order(tmp_path: Path, is_local: bool) -> None:
    store = BlobStore(tmp_path) if is_local else MemoryBlobStore()
    hashes = random_hashes(400)
    snapshot = write_snapshot(store, "s", hashes, 1)
    logs = [
        write_changelog(store, "z-first", 1, changes(hashes[:200], value=2)),
        write_changelog(store, "a-second", 2, changes(hashes[:50], hashes[50:60], value=3)),
    ]
    states = load_groups(store, manifest([snapshot], logs[::-1]), range(8), DictState)
    expected = dict.fromkeys(hashes, 1) | dict.fromkeys(hashes[:200], 2)
    expected |= dict.fromkeys(hashes[:50], 3)
    for hash_ in hashes[50:60]:
        del expected[hash_]
    found = {hash_: n for r in states.values() for (_, hash_), n in r.state.content.items()}
    assert found == expected
    assert all(hash_ % 8 == group for group, r in states.items() for _, hash_ in r.state.content)
    assert all(r.replayed > 0 for r in states.values())
    assert {r.snapshot_epoch for r in states.values()} == {snapshot.epoch}


def test_entries_of_groups_that_do_not_count_are_left_out() -> None:
    store = MemoryBlobStore()
    log = write_changelog(store, "c", 1, changes(range(16)))
    states = load_groups(store, manifest([], [log.only([1, 2])]), [0, 1], DictState)
    assert {group: len(r.state.content) for group, r in states.items()} == {0: 0, 1: 2}


def test_some_bins_of_a_group() -> None:
    store = MemoryBlobStore()
    hashes = random_hashes(400)
    snapshot = write_snapshot(store, "s", hashes, 1)
    log = write_changelog(store, "c", 1, changes(hashes[::2], value=2))
    found: dict[Any, int] = {}
    for bins in ([0, 3], [1], [2]):
        state = load_groups(store, manifest([snapshot], [log]), [5], DictState, bins)[5].state
        assert not found.keys() & state.content.keys()
        found |= state.content
    whole = load_groups(store, manifest([snapshot], [log]), [5], DictState)[5].state
    assert found == whole.content


def test_every_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryBlobStore()
    refs = [write_changelog(store, f"c{n}", n, changes(random_hashes(50, n))) for n in range(1, 4)]
    snapshot = write_snapshot(store, "s", random_hashes(50), 1)
    reads: list[str] = []
    read = store.read

    def counted(path: str) -> Any:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(store, "read", counted)
    load_groups(store, manifest([snapshot], refs), range(8), DictState)
    assert reads == ["s", "c1", "c2", "c3"]


@pytest.mark.parametrize(("limit", "calls"), [(1 << 20, 1), (0, 3)])
def test_changelogs_are_replayed_together_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, calls: int
) -> None:
    store, replays = MemoryBlobStore(), []
    refs = [write_changelog(store, f"c{n}", n, changes([0, 8], value=n)) for n in range(1, 4)]

    class Counting(DictState):
        def replay(self, sections: Any) -> None:
            replays.append(sections["s"].num_rows)
            super().replay(sections)

    monkeypatch.setattr("anabranch.durability.group_restore._REPLAY_BYTES", limit)
    states = load_groups(store, manifest([], refs), [0], Counting)
    assert states[0].state.content == {("s", 0): 3, ("s", 8): 3}
    assert len(replays) == calls
    assert sum(replays) == 6


def test_columns_that_change_their_type_are_not_put_together() -> None:
    store = MemoryBlobStore()
    table = changes([0], value=1)
    at = table.schema.get_field_index("count")
    narrow = table.set_column(at, "count", table.column("count").cast(pa.int32()))
    refs = [
        write_changelog(store, "c1", 1, narrow),
        write_changelog(store, "c2", 2, changes([0], value=2)),
    ]
    states = load_groups(store, manifest([], refs), [0], DictState)
    assert states[0].state.content == {("s", 0): 2}


def test_few_groups_of_a_large_snapshot_are_read_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryBlobStore()
    hashes = random_hashes(2000)
    snapshot = write_snapshot(store, "s", hashes, 1)
    monkeypatch.setattr("anabranch.durability.group_restore._WHOLE_FILE_BYTES_MAX", 1000)
    monkeypatch.setattr(store, "read", None)
    states = load_groups(store, manifest([snapshot], []), [2, 7], DictState)
    assert {hash_ for _, hash_ in states[2].state.content} == set(by_group(hashes, SMALL)[2])
    assert {hash_ for _, hash_ in states[7].state.content} == set(by_group(hashes, SMALL)[7])


def test_nothing_stored_is_empty_state() -> None:
    found = load_groups(MemoryBlobStore(), manifest([], []), [3], DictState)[3]
    assert found.state.num_rows == 0
    assert found.wear == [-1, 0]


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60),
    st.sets(st.integers(0, 7)),
    st.sampled_from([KeySpace(8, 4), KeySpace(100_000, 2)]),
)
def test_split_is_a_stable_filter(hashes: list[int], groups: set[int], keyspace: KeySpace) -> None:
    grouped = split_by_group({"s": entries(hashes)}, groups, keyspace)
    for group in groups:
        expected = [hash_ for hash_ in hashes if hash_ % keyspace.groups == group]
        found = grouped.get(group, {}).get("s", entries([])).column(HASH).to_pylist()
        assert found == expected
    assert grouped.keys() <= groups
