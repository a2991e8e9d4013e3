"""Several changelogs in one file: each part is read as a file of its own is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.durability.samples import SMALL, changes
from tests.unit.durability.test_store import DESCRIPTION, opened

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore, MemoryBlobStore
from anabranch.durability.changelog import CHANGELOG, encode_changelog
from anabranch.durability.copies import Folder
from anabranch.durability.file_refs import FileRef, parse_refs
from anabranch.durability.group_restore import load_groups, open_part
from anabranch.durability.manifest import next_manifest
from anabranch.durability.pack import PackPart, write_parts
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.errors import CorruptState

LANES = 4


class Replayed:
    """State that remembers what was replayed."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def replay(self, sections: Any) -> None:
        self.entries += sections["s"].to_pylist()


def parts(epoch: int, lanes: int = LANES) -> list[PackPart]:
    """Each lane changes one key in each of its key groups."""
    found = []
    for lane in range(lanes):
        groups = tuple(range(lane, SMALL.groups, lanes))
        encoded = encode_changelog({"s": changes(list(groups), value=epoch)}, SMALL)
        path = names.changelog_path("op", epoch, lane, "w1", "a", lane + 1)
        found.append(PackPart(path, epoch, groups, encoded))
    return found


def commit(store: StateStore, epoch: int, refs: list[FileRef]) -> None:
    store.commit(
        next_manifest(
            store.before("op", epoch - 1 if epoch else None),
            epoch,
            refs,
            operator="op",
            query_id="q",
            keyspace=SMALL,
            description=DESCRIPTION,
            committed_at=0,
        )
    )


class CountingBlobs(MemoryBlobStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> Any:
        self.reads[path] += 1
        return super().read(path)

    def read_range(self, path: str, offset: int, length: int) -> Any:
        self.reads[path] += 1
        return super().read_range(path, offset, length)


def test_parts_are_one_file_and_are_read_together() -> None:
    blobs = CountingBlobs()
    store = opened(blobs)
    for epoch in range(3):
        refs = write_parts(blobs, parts(epoch))
        assert {ref.path for ref in refs} == {parts(epoch)[0].path}
        assert [parse_refs(ref.text()) for ref in refs] == [[ref] for ref in refs]
        commit(store, epoch, refs)
    manifest = StateStore(blobs).look().manifest("op", 2)
    assert len(manifest.changelogs) == 3 * LANES
    assert len(blobs.list(names.changelog_folder("op"))) == 3
    store.verify(manifest)
    blobs.reads.clear()
    found = load_groups(blobs, manifest, range(SMALL.groups), Replayed)  # type: ignore[type-var]
    assert {g: [e["count"] for e in one.state.entries] for g, one in found.items()} == {
        group: [0, 1, 2] for group in range(SMALL.groups)
    }
    assert blobs.reads == {parts(epoch)[0].path: 1 for epoch in range(3)}


def test_one_part_is_read_without_the_others() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    refs = write_parts(blobs, parts(0))
    commit(store, 0, refs)
    path = refs[0].path
    content = bytearray(blobs.files[path])
    content[refs[2].start + 100] ^= 1
    blobs.files[path] = bytes(content)
    manifest = store.manifest("op", 0)
    for lane, ref in enumerate(refs):
        groups = list(ref.groups)
        file = open_part(CHANGELOG, blobs, ref)
        if lane == 2:
            with pytest.raises(CorruptState, match="changelog"):
                load_groups(blobs, manifest, groups, Replayed)  # type: ignore[type-var]
        else:
            found = load_groups(blobs, manifest, groups, Replayed)  # type: ignore[type-var]
            assert all(one.state.entries for one in found.values())
            assert file.read("s").num_rows == len(groups)
    blobs.files[path] = bytes(content[: refs[3].start + 10])
    with pytest.raises(CorruptState):
        load_groups(blobs, manifest, list(refs[3].groups), Replayed)  # type: ignore[type-var]
    with pytest.raises(CorruptState):
        load_groups(blobs, manifest, range(SMALL.groups), Replayed)  # type: ignore[type-var]
    with pytest.raises(CorruptState, match="instead of"):
        store.verify(manifest)


def test_a_part_that_is_alone_is_a_file_as_before() -> None:
    blobs = MemoryBlobStore()
    (part, *_) = parts(0)
    (ref,) = write_parts(blobs, [part])
    assert ref.offset is None
    assert len(json.loads(ref.text())) == 5
    assert blobs.size(part.path) == ref.bytes == part.bytes


def test_a_pack_lives_as_long_as_one_part_counts() -> None:
    blobs = MemoryBlobStore()
    store = opened(blobs)
    commit(store, 0, write_parts(blobs, parts(0)))
    pack = parts(0)[0].path
    for epoch in range(1, 8):
        snapshots = [
            FileRef(names.snapshot_path("op", epoch - 1, "w1", "a", 1), epoch - 1, 1, 1, groups)
            for groups in [tuple(range(epoch - 1, SMALL.groups, LANES))]
            if epoch <= LANES
        ]
        for ref in snapshots:
            blobs.write(ref.path, b"1")
        known = store.before("op", epoch - 1)
        refs = write_parts(blobs, parts(epoch))
        store.commit(
            next_manifest(
                known,
                epoch,
                refs,
                snapshots,
                operator="op",
                query_id="q",
                keyspace=SMALL,
                description=DESCRIPTION,
                committed_at=0,
            )
        )
        store.collect_garbage("op", retain=2)
        # Of the last of its lanes a snapshot is in the manifest of epoch 4, and 3 is kept till 5.
        assert blobs.exists(pack) == (epoch < LANES + 1)


def test_savepoints_take_packs_along(tmp_path: Path) -> None:
    from contextlib import nullcontext

    from anabranch.durability.savepoint import create_savepoint

    with StateStore(tmp_path / "state").open() as store:
        store.open_operator("op", DESCRIPTION, SMALL)
        store.bind_query("op", "q", 0)
        for epoch in range(3):
            commit(store, epoch, write_parts(store.blobs, parts(epoch)))
        saved = create_savepoint(store, nullcontext(), "one")
        saved.verify()
        copied = saved.copy(str(tmp_path / "copy"))
        copied.verify()
    with StateStore(tmp_path / "restored").open() as other:
        restore_savepoint(other, copied.path, SMALL)
        origin = other.before("op", None)
        assert origin is not None
        other.verify(origin)
        assert len(other.blobs.list(names.changelog_folder("op"))) == 3
        found = load_groups(other.blobs, origin, range(SMALL.groups), Replayed)  # type: ignore[type-var]
        assert all([e["count"] for e in one.state.entries] == [0, 1, 2] for one in found.values())
    torn = Folder(BlobStore(str(tmp_path / "copy")))
    path = next(path for path in torn.files() if path.endswith(".changelog"))
    torn.write(path, torn.read(path)[:-100])
    with pytest.raises(CorruptState, match="not copied whole"):
        copied.verify()
