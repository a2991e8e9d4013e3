"""A state location: creation, mismatches, the fence, commits and garbage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.durability.samples import SMALL, DictState, changes

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore, MemoryBlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.documents import seal
from anabranch.durability.garbage import deletable
from anabranch.durability.group_restore import load_groups
from anabranch.durability.manifest import FileRef, Manifest, file_ref, next_manifest
from anabranch.durability.store import StateStore
from anabranch.errors import (
    CorruptState,
    EpochGap,
    FormatNotSupported,
    InvalidArgument,
    LocationInUse,
    LocationNotWritable,
    ProtocolViolation,
    StateMismatch,
)
from anabranch.model.keyspace import KeySpace

DESCRIPTION = {"kind": "count", "key": ["a"], "variables": {"count": "long"}}


def opened(blobs: BlobStore | Path) -> StateStore:
    store = StateStore(blobs).open()
    store.open_operator("op", DESCRIPTION, SMALL)
    return store


def commit(store: StateStore, epoch: int, snapshots: tuple[FileRef, ...] = ()) -> Manifest:
    path = names.changelog_path("op", epoch, 0, "w1", "a", 1)
    buffers = encode_changelog({"s": changes([epoch], value=epoch)})
    store.blobs.write(path, buffers)
    known = [known for known in store.epochs("op") if known < epoch]
    manifest = next_manifest(
        store.manifest("op", known[-1]) if known else None,
        epoch,
        [file_ref(path, epoch, buffers, range(SMALL.groups))],
        snapshots,
        operator="op",
        query_id=None,
        keyspace=SMALL,
        description=DESCRIPTION,
        committed_at=epoch,
    )
    store.commit(manifest)
    return manifest


def test_a_new_location_is_created_and_opened_again(tmp_path: Path) -> None:
    location = tmp_path / "not" / "there yet"
    with StateStore(location) as store:
        assert store.operators() == []
        record = store.open_operator("op/ü", DESCRIPTION, SMALL)
        assert record.query_id is None
        assert store.latest_epoch("op/ü") is None
    with StateStore(str(location)) as store:
        assert store.operators() == ["op/ü"]
        assert store.operator("op/ü").description == DESCRIPTION
        store.open_operator("op/ü", DESCRIPTION, SMALL)
    assert (location / "format.json").read_bytes() == seal({"anabranch_state_format": 1})


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StateMismatch, match=r"not empty.*thesis\.txt"):
        StateStore(tmp_path).open()
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_an_interrupted_creation_is_finished(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "format.json.123.tmp").touch()
    StateStore(tmp_path).open().close()
    assert (tmp_path / "format.json").exists()


def test_a_file_as_location_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((LocationNotWritable, CorruptState), match="file"):
        StateStore(tmp_path / "file").open()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write")
def test_a_folder_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(LocationNotWritable, match=r"/proc/anabranch.*may write"):
        StateStore("/proc/anabranch").open()


def test_an_unknown_scheme_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidArgument, match=r"pyarrow\.fs"):
        StateStore("nope://bucket/path")
    with pytest.raises(InvalidArgument, match="empty"):
        StateStore("")


def test_a_newer_format_is_refused() -> None:
    blobs = MemoryBlobStore()
    blobs.write("format.json", seal({"anabranch_state_format": 3}))
    before = dict(blobs.files)
    with pytest.raises(FormatNotSupported, match="state format 3"):
        StateStore(blobs).open()
    assert blobs.files == before
    blobs.write("format.json", b"{}")
    with pytest.raises(CorruptState, match=r"format\.json"):
        StateStore(blobs).open()


def test_a_failed_open_does_not_keep_the_lock() -> None:
    blobs = MemoryBlobStore()
    blobs.faults.fail_next()
    with pytest.raises(LocationNotWritable, match=r"format\.json"):
        StateStore(blobs).open()
    StateStore(blobs).open()


@pytest.mark.parametrize(
    ("description", "keyspace", "said"),
    [
        ({**DESCRIPTION, "kind": "sum"}, SMALL, 'description.kind: stored "count", now "sum"'),
        (
            {**DESCRIPTION, "variables": {"count": "int"}},
            SMALL,
            'description.variables.count: stored "long", now "int"',
        ),
        ({**DESCRIPTION, "key": ["a", "b"]}, SMALL, 'key: stored ["a"], now ["a", "b"]'),
        ({**DESCRIPTION, "more": 1}, SMALL, "description.more: stored nothing, now 1"),
        ({"kind": "count"}, SMALL, 'description.key: stored ["a"], now absent'),
        (DESCRIPTION, KeySpace(16, 4), "key groups: stored 8, now 16"),
        (DESCRIPTION, KeySpace(8, 2), "bins: stored 4, now 2"),
    ],
)
def test_a_changed_operator_is_told_what_differs(
    description: dict[str, Any], keyspace: KeySpace, said: str
) -> None:
    store = opened(MemoryBlobStore())
    with pytest.raises(StateMismatch) as caught:
        store.open_operator("op", description, keyspace)
    assert said in str(caught.value)
    assert "new operator name" in str(caught.value)


def test_tuples_and_lists_are_the_same_description() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    before = dict(blobs.files)
    record = store.open_operator("op", {**DESCRIPTION, "key": ("a",)}, SMALL)
    assert record.description == DESCRIPTION
    assert blobs.files == before
    with pytest.raises(StateMismatch, match=r'key\[0\]: stored "a", now "b"'):
        store.open_operator("op", {**DESCRIPTION, "key": ("b",)}, SMALL)


def test_a_query_is_bound_for_good() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    store.bind_query("op", "q1", 0)
    store.bind_query("op", "q1", 0)
    store.close()
    again = opened(blobs)
    again.bind_query("op", "q1", 0)
    with pytest.raises(StateMismatch, match=r"belongs to query q1, but query q2.*checkpoint"):
        again.bind_query("op", "q2", 0)


def test_only_one_live_service_holds_a_location(tmp_path: Path) -> None:
    first = StateStore(tmp_path / "s").open()
    with pytest.raises(LocationInUse, match=f"process {os.getpid()} on .*, since 20"):
        StateStore(tmp_path / "s").open()
    first.close()
    first.close()
    StateStore(tmp_path / "s").open().close()


def test_a_former_owner_cannot_commit() -> None:
    blobs = MemoryBlobStore()
    first = opened(blobs)
    commit(first, 0)
    blobs.release_holds()  # as on a store without locks
    second = opened(blobs.twin())
    before = dict(blobs.files)
    with pytest.raises(LocationInUse, match="taken over"):
        first.commit(next_of(first, 1))
    for call in (
        lambda: first.bind_query("op", "q", 0),
        lambda: first.collect_garbage("op"),
        lambda: first.open_operator("other", {}, SMALL),
    ):
        with pytest.raises(LocationInUse):
            call()
    assert blobs.files == before
    commit(second, 1)


def next_of(store: StateStore, epoch: int) -> Manifest:
    return next_manifest(
        store.manifest("op", epoch - 1),
        epoch,
        [],
        operator="op",
        query_id=None,
        keyspace=SMALL,
        description=DESCRIPTION,
        committed_at=0,
    )


def test_a_take_over_during_the_write_is_found_afterwards() -> None:
    class Racing(MemoryBlobStore):
        """Lets another owner in between check and write."""

        def write(self, path: str, buffers: Any) -> None:
            if "manifests" in path:
                self.release_holds()
                StateStore(self.twin()).open()
            super().write(path, buffers)

    with pytest.raises(LocationInUse):
        commit(opened(Racing()), 0)


def test_epochs_exist_once_committed() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    first = commit(store, 4)
    assert store.latest_epoch("op") == 4
    assert store.manifest("op", 4) == first
    blobs.faults.fail_next(after=1)  # the changelog is written, the manifest is not
    with pytest.raises(LocationNotWritable, match=r"manifests/0+5\.json"):
        commit(store, 5)
    assert store.latest_epoch("op") == 4
    commit(store, 5)
    assert StateStore(blobs).latest_epoch("op") == 5


def test_the_last_epoch_can_be_committed_again_but_no_older_one() -> None:
    store = opened(MemoryBlobStore())
    for epoch in range(3):
        commit(store, epoch)
    commit(store, 2)
    with pytest.raises(EpochGap, match="at epoch 2; epoch 1"):
        commit(store, 1)
    assert store.epochs("op") == [0, 1, 2]


def test_a_torn_manifest_is_an_error_not_an_older_epoch() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    commit(store, 0)
    blobs.faults.tear_next(keep_bytes=30, after=1)
    with pytest.raises(LocationNotWritable):
        commit(store, 1)
    again = StateStore(blobs)
    assert again.latest_epoch("op") == 1
    with pytest.raises(CorruptState, match=r"manifests/0+1\.json"):
        again.manifest("op", 1)


def test_a_renamed_manifest_is_found() -> None:
    blobs = MemoryBlobStore()
    commit(opened(blobs), 0)
    path = names.manifest_path("op", 7)
    blobs.write(path, blobs.files[names.manifest_path("op", 0)])
    with pytest.raises(CorruptState, match="renamed"):
        StateStore(blobs).manifest("op", 7)


def test_missing_and_damaged_state_files_are_named() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    commit(store, 0)
    manifest = commit(store, 1)
    store.verify(manifest)
    path = manifest.changelogs[0].path
    content = blobs.files[path]

    def load() -> None:
        load_groups(blobs, manifest, range(SMALL.groups), DictState)

    checks: list[tuple[bytes | None, Callable[[], None]]] = [
        (None, load),
        (None, lambda: store.verify(manifest)),
        (content[:-1], load),
        (content[:-1], lambda: store.verify(manifest)),
        (content[:100] + b"x" + content[101:], load),
        (blobs.files[manifest.changelogs[1].path], load),
    ]
    for damage, check in checks:
        blobs.files[path] = damage or b""
        if damage is None:
            del blobs.files[path]
        with pytest.raises(CorruptState) as caught:
            check()
        assert blobs.full_name(path) in str(caught.value)


def test_epochs_without_their_operator_are_an_error() -> None:
    blobs = MemoryBlobStore()
    commit(opened(blobs), 0)
    blobs.delete(names.operator_path("op"))
    blobs.release_holds()
    with pytest.raises(CorruptState, match=r"operator\.json"):
        opened(blobs)


def test_garbage_keeps_the_last_epochs_and_everything_unknown() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    for epoch in range(30):
        commit(
            store,
            epoch,
            (FileRef(names.snapshot_path("op", 10, "w", "i", 1), 10, 1, 1, (0,)),)
            if epoch == 12
            else (),
        )
    unlisted_old = names.changelog_path("op", 3, 0, "w9", "late", 1)
    unlisted_new = names.changelog_path("op", 29, 0, "w9", "late", 1)
    leftover = unlisted_old + ".abc.tmp"
    foreign = [f"{names.changelog_folder('op')}/notes.txt", "operators/other/changelog/x", "README"]
    initial = names.initial_path("op", 0)
    for path in (unlisted_old, unlisted_new, leftover, initial, *foreign):
        blobs.write(path, b"1")
    collected = store.collect_garbage("op")
    assert store.epochs("op") == list(range(20, 30))
    assert collected.manifests == tuple(names.manifest_path("op", epoch) for epoch in range(20))
    assert set(collected.files) == {unlisted_old, leftover}  # the rest is still needed
    assert all(path in blobs.files for path in (unlisted_new, initial, *foreign))
    assert store.collect_garbage("op").manifests == ()


def test_garbage_removes_changelogs_that_snapshots_replaced() -> None:
    store = opened(MemoryBlobStore())
    for epoch in range(10):
        commit(store, epoch)
    snapshot = FileRef(names.snapshot_path("op", 9, "w", "i", 1), 9, 1, 1, tuple(range(8)))
    store.blobs.write(snapshot.path, b"1")
    for epoch in range(10, 13):
        commit(store, epoch, (snapshot,) if epoch == 10 else ())
    assert len(store.collect_garbage("op", retain=3).files) == 10
    assert snapshot.path in store.blobs.list()


def test_a_snapshot_that_may_be_collected_is_not_accepted() -> None:
    store = opened(MemoryBlobStore())
    for epoch in range(6):
        commit(store, epoch)
    store.collect_garbage("op", retain=2)
    late = FileRef(names.snapshot_path("op", 3, "w", "i", 1), 3, 1, 1, (0,))
    fresh = FileRef(names.snapshot_path("op", 4, "w", "i", 1), 4, 1, 1, (0,))
    assert not store.accepts("op", late)
    assert store.accepts("op", fresh)
    with pytest.raises(ProtocolViolation, match="garbage"):
        commit(store, 6, (late,))
    commit(store, 6, (fresh,))


def test_a_damaged_manifest_stops_the_collection() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    for epoch in range(6):
        commit(store, epoch)
    blobs.write(names.manifest_path("op", 4), b"rubbish")
    blobs.release_holds()
    fresh = opened(blobs)
    before = dict(blobs.files)
    with pytest.raises(CorruptState):
        fresh.collect_garbage("op", retain=3)
    assert blobs.files == before


def test_retain_has_a_floor_and_nothing_is_fine() -> None:
    store = opened(MemoryBlobStore())
    with pytest.raises(InvalidArgument, match="at least 2"):
        store.collect_garbage("op", retain=1)
    assert store.collect_garbage("op").files == ()


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans())), st.integers(0, 30))
def test_deletable_is_unlisted_and_old(files: list[tuple[int, bool]], oldest: int) -> None:
    listed, paths = set(), []
    for number, (epoch, is_listed) in enumerate(files):
        path = names.changelog_path("op", epoch, number, "w", "i", 1)
        paths.append(path)
        if is_listed:
            listed.add(path)
    expected = [
        path
        for path, (epoch, is_listed) in zip(paths, files, strict=True)
        if epoch < oldest and not is_listed
    ]
    assert deletable([*paths, "operators/op/changelog/foreign"], listed, oldest) == expected
