"""State in the store, read by key, bin and time: the same as what is in memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.operators import Case, hashes_of, make_case
from tests.unit.durability.samples import changes
from tests.unit.processor.columnar.support import MemoryTransaction

from anabranch.durability.blobs import BlobStore, MemoryBlobStore
from anabranch.durability.changelog import CHANGELOG, encode_changelog
from anabranch.durability.group_restore import load_groups
from anabranch.durability.lazy_reader import LazyReader, OpenFiles
from anabranch.durability.manifest import FileRef, Manifest, file_ref, next_manifest, restore_plan
from anabranch.durability.snapshot import SNAPSHOT, encode_snapshot
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.columnar.aggregates import AggregateProcessor, Measure
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.kernels import Count
from anabranch.processor.columnar.selection import Nth
from anabranch.processor.contract import BatchTimes, RowChunk

KEYSPACE = KeySpace(8, 4)
GROUPS = tuple(range(KEYSPACE.groups))
EPOCHS = 9


def texts() -> Case:
    """Text that seldom changes: changelogs leave it out."""
    key = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    output = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
    measures = [
        Measure("n", Count(), None),
        Measure("text", Nth(pa.string(), last=True, ignore_nulls=False), "text"),
    ]
    processor = AggregateProcessor(measures, output, windowed=False, append=False, expiry=None)
    inputs = pa.schema([*key, ("text", pa.string())])

    def rows(keys: Any, epoch: int) -> pa.Table:
        said = [f"{key}-{epoch // 4}" * 20 for key in keys]
        return pa.table({HASH: hashes_of(keys), "k": keys, "text": pa.array(said, pa.string())})

    return Case("texts", ColumnarDefinition(processor, key, inputs, output), rows)


CASES: dict[str, Callable[[], Case]] = {
    "texts": texts,
    "windows": lambda: make_case("windows"),
    "everything": lambda: make_case("everything"),
}


class History:
    """An operator whose changes and snapshots are written as a worker does."""

    def __init__(self, case: Case, store: BlobStore) -> None:
        self.case, self.store = case, store
        self.engine = case.definition.open(KEYSPACE)
        self.states = {group: self.engine.create_group() for group in GROUPS}
        self.manifest: Manifest | None = None
        self.taken: list[FileRef] = []
        for epoch in range(EPOCHS):
            self.run(epoch)

    def run(self, epoch: int) -> None:
        times = self.case.times(epoch)
        tx = MemoryTransaction(epoch, GROUPS, times, [RowChunk(GROUPS, self.case.rows(epoch))])
        for state in self.states.values():
            state.begin()
        self.engine.apply(tx, self.states)
        tables: dict[str, list[pa.Table]] = {}
        for name, table in tx.logged:
            tables.setdefault(name, []).append(table)
        changes = {n: pa.concat_tables(t, promote_options="default") for n, t in tables.items()}
        # Two files an epoch; some snapshots; one file as others may write it, not sorted.
        keyspace = None if epoch == 6 else KEYSPACE
        due = None if epoch == 6 else self.engine.due_column
        logs = [
            self._write(f"{epoch}-{n}", epoch, encode_changelog(changes, keyspace, due), half)
            for n, half in enumerate((GROUPS[::2], GROUPS[1::2]))
        ]
        self.manifest = next_manifest(
            self.manifest,
            epoch,
            logs,
            self.taken,
            operator="op",
            query_id=None,
            keyspace=KEYSPACE,
            description={},
            committed_at=0,
        )
        self.taken = []
        if epoch in (2, 4):
            saved = {group: self.states[group].export() for group in GROUPS[epoch - 2 :]}
            buffers = encode_snapshot(saved, KEYSPACE, self.engine.due_column)
            self.taken = [self._write(f"s{epoch}", epoch, buffers, tuple(saved))]

    def _write(self, path: str, epoch: int, buffers: Any, groups: tuple[int, ...]) -> FileRef:
        self.store.write(path, buffers)
        return file_ref(path, epoch, buffers, groups)

    def stored(self) -> LazyReader:
        assert self.manifest is not None
        return LazyReader(self.manifest, OpenFiles(self.store))


def content(sections: dict[str, pa.Table]) -> list[str]:
    return sorted(f"{name} {row}" for name, table in sections.items() for row in table.to_pylist())


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path, fsync=False) if request.param else MemoryBlobStore()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.durability.pages.PAGE_BYTES", 300)


@pytest.mark.parametrize("name", CASES)
def test_keys_and_bins_are_those_in_memory(name: str, store: BlobStore) -> None:
    history = History(CASES[name](), store)
    stored, create = history.stored(), history.engine.create_group
    every = np.unique(np.concatenate([_hashes(s.export()) for s in history.states.values()]))
    chance = np.random.default_rng(1)
    for count in (1, 7, len(every)):
        asked = np.concatenate((chance.choice(every, count, replace=False), [123, -77]))
        found = stored.keys(asked, create)
        for group, state in history.states.items():
            mine = asked[KEYSPACE.group_of(asked) == group]
            assert content(found.get(group, {})) == content(state.export(hashes=mine))
    for group, state in history.states.items():
        for bins in ([0], [1, 3], range(4)):
            assert content(stored.part(group, bins, create)) == content(state.export(bins))
    assert history.manifest is not None
    for group, restored in load_groups(store, history.manifest, GROUPS, create).items():
        assert content(restored.state.export()) == content(history.states[group].export())


def test_changelogs_that_a_snapshot_covers_in_part(store: BlobStore) -> None:
    history = History(texts(), store)
    assert history.manifest is not None
    stored = history.stored()
    for plan in restore_plan(history.manifest, GROUPS):
        assert plan.snapshot is not None
        since = [ref for ref in history.manifest.changelogs if plan.group in ref.groups]
        listed, counted = len(since), len(plan.changelogs)
        assert (listed > counted) == (plan.group >= 2)  # the others are of the older snapshot
        replayed = sum(ref.bytes / len(ref.groups) for ref in plan.changelogs)
        assert stored.wear(plan.group) == [plan.snapshot.epoch, round(replayed)]


@pytest.mark.parametrize("name", ["windows", "everything"])
def test_what_is_due_is_found(name: str, store: BlobStore) -> None:
    history = History(CASES[name](), store)
    stored, engine = history.stored(), history.engine
    column = engine.due_column
    assert column is not None
    passed = engine.due_limit(history.case.times(EPOCHS - 1))
    found_any = False
    for epoch in range(EPOCHS, EPOCHS + 6):
        times: BatchTimes = history.case.times(epoch)
        for after in (passed, None):
            found = stored.due(GROUPS, column, after, engine.due_limit(times))
            for group, state in history.states.items():
                due = engine.due_hashes(state, times)
                found_any |= bool(len(due))
                mine = found[KEYSPACE.group_of(found) == group]
                assert set(due.tolist()) <= set(mine.tolist())
        assert not len(stored.due((), column, None, engine.due_limit(times)))
    assert found_any
    nothing = stored.due(GROUPS, column, passed, passed)
    last = [ref for ref in stored.manifest.files if ref.epoch == stored.epoch]
    assert last
    assert len(nothing) < sum(s.num_rows for s in history.states.values())


def test_a_key_is_one_page(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(texts(), store)
    stored = history.stored()
    read: list[int] = []
    inner = store.read_range

    def counted(path: str, offset: int, length: int) -> Any:
        if not path.startswith("6-"):  # that one is not sorted
            read.append(length)
        return inner(path, offset, length)

    monkeypatch.setattr("anabranch.durability.pages._END_BYTES", 64)
    fresh = history.stored()
    fresh.open(GROUPS)
    monkeypatch.setattr(store, "read_range", counted)
    monkeypatch.setattr("anabranch.durability.pages._GAP_LOCAL_BYTES", 0)
    monkeypatch.setattr("anabranch.durability.pages._GAP_REMOTE_BYTES", 0)
    (plan,) = restore_plan(stored.manifest, [5])
    files = 1 + len(plan.changelogs)
    keys = _hashes(history.states[5].export())
    for key in keys:
        before = len(read)
        fresh.keys(np.array([key]), history.engine.create_group)
        assert len(read) - before <= 2 * files
    assert len(read) >= len(keys) // 2
    assert max(read) < 2000
    assert stored.pages(5) > 4


def test_only_files_that_are_needed_are_opened(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(texts(), store)
    inner, seen = store.read_range, set()

    def noted(path: str, offset: int, length: int) -> Any:
        seen.add(path)
        return inner(path, offset, length)

    monkeypatch.setattr(store, "read_range", noted)
    stored, create = history.stored(), history.engine.create_group
    assert not seen
    mine = GROUPS[::2]
    stored.open(mine)
    listed = {ref.path for ref in stored.manifest.files if set(ref.groups) & set(mine)}
    assert seen == listed < {ref.path for ref in stored.manifest.files}
    for group in mine:
        assert stored.pages(group) > 0
        every = history.states[group].export()
        assert content(stored.keys(_hashes(every), create).get(group, {})) == content(every)
    assert seen == listed


def test_what_stays_in_memory_of_files_is_bounded(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(texts(), store)
    assert history.manifest is not None
    sizes = sorted(ref.bytes for ref in history.manifest.files)
    files = OpenFiles(store)
    monkeypatch.setattr("anabranch.durability.lazy_reader.HELD_BYTES", sum(sizes) // 2)
    monkeypatch.setattr("anabranch.durability.pages._END_BYTES", sizes[-1] - 1)
    stored = LazyReader(history.manifest, files)
    stored.open(GROUPS)
    kinds = dict.fromkeys((r.path for r in history.manifest.snapshots), SNAPSHOT)
    held = [
        files.get(kinds.get(ref.path, CHANGELOG), ref).held_bytes for ref in history.manifest.files
    ]
    # Small ones whole or not at all, large ones not; all can be read.
    assert 0 < sum(held) <= sum(sizes) // 2
    assert held.count(0) > 1
    for group, state in history.states.items():
        found = stored.part(group, range(4), history.engine.create_group)
        assert content(found) == content(state.export())


def _hashes(sections: dict[str, pa.Table]) -> Any:
    return np.concatenate([table.column(HASH).to_numpy() for table in sections.values()])


def test_files_are_opened_while_others_are_forgotten() -> None:
    """Two threads of a worker at once."""
    store, refs = MemoryBlobStore(), []
    buffers = encode_changelog({"s": changes([1])}, KEYSPACE)
    for n in range(400):
        store.write(f"c{n}", buffers)
        refs.append(file_ref(f"c{n}", n, buffers, GROUPS))
    files, keys = OpenFiles(store), {ref.key for ref in refs[::2]}
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(lambda: [files.get(CHANGELOG, ref) for _ in range(5) for ref in refs])
        while not opening.done():
            files.keep(keys)
        assert len(opening.result()) == 2000
    files.keep(keys)
    assert not any(files.has(ref) for ref in refs[1::2])
