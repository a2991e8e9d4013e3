"""Manifests that share lists: they stay small, and whatever is kept can be read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.durability.samples import SMALL
from tests.unit.durability.test_store import DESCRIPTION, opened

from anabranch.durability import manifest_content, names
from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.file_refs import FileRef, groups_text, parse_groups
from anabranch.durability.manifest import Manifest, next_manifest
from anabranch.durability.manifest_reader import ManifestReader
from anabranch.durability.store import StateStore
from anabranch.errors import CorruptState, LocationNotWritable
from anabranch.model.keyspace import KeySpace

FIXED: dict[str, Any] = {
    "operator": "op",
    "query_id": None,
    "keyspace": SMALL,
    "description": DESCRIPTION,
}


@pytest.fixture
def small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_content, "ADDED_BYTES_MAX", 300)
    monkeypatch.setattr(manifest_content, "ADDED_EPOCHS", 1)


def changelogs(epoch: int, lanes: int = 2, groups: int = SMALL.groups) -> list[FileRef]:
    return [
        FileRef(
            names.changelog_path("op", epoch, lane, "w1", "a", 1),
            epoch,
            1,
            epoch,
            tuple(range(lane, groups, lanes)),
        )
        for lane in range(lanes)
    ]


@dataclass
class Line:
    """An operator's epochs in a store, and the same manifests without lists."""

    store: StateStore
    model: dict[int, Manifest]

    def commit(
        self, epoch: int, refs: list[FileRef], taken: list[FileRef], store: bool = True
    ) -> None:
        for ref in (*refs, *taken):
            self.store.blobs.write(ref.path, b"1")
        before, known = self.model.get(epoch - 1), None
        if before is not None:
            known = self.store.before("op", epoch - 1)
            assert known == before
        fresh = next_manifest(before, epoch, refs, taken, **FIXED, committed_at=epoch)
        self.model[epoch] = fresh.whole()
        self.store.commit(next_manifest(known, epoch, refs, taken, **FIXED, committed_at=epoch))

    def check(self) -> None:
        """Another process reads every epoch that is kept, with all its files."""
        other = StateStore(self.store.blobs).look()
        for epoch in other.epochs("op"):
            found = other.manifest("op", epoch)
            assert found == self.model[epoch]
            other.verify(found)


def started(blobs: MemoryBlobStore | None = None) -> Line:
    return Line(opened(blobs or MemoryBlobStore()), {})


@pytest.mark.usefixtures("small_lists")
@pytest.mark.parametrize("seed", range(8))
def test_every_kept_epoch_can_be_read(seed: int) -> None:
    chance = random.Random(seed)
    line, epoch = started(), -1
    for number in range(60):
        if epoch < 0 or chance.random() < 0.85:
            epoch += 1  # else the last one is executed again
        taken = []
        if epoch and chance.random() < 0.4:
            groups = tuple(sorted(chance.sample(range(SMALL.groups), chance.randint(1, 5))))
            of = chance.randint(max(0, epoch - 2), epoch - 1)
            ref = FileRef(names.snapshot_path("op", of, "w1", "a", number), of, 1, 1, groups)
            taken = [ref] if line.store.accepts("op", ref) else []
        line.commit(epoch, changelogs(epoch, chance.randint(1, 3)), taken)
        if chance.random() < 0.1:
            line.store.collect_garbage("op", retain=chance.randint(2, 4))
        if chance.random() < 0.1:  # another service goes on
            line.store.close()
            line.store = opened(line.store.blobs)
        line.check()
    assert any("/lists/" in path for path in line.store.blobs.list())
    line.store.collect_garbage("op", retain=2)
    line.check()
    # Nothing is left that no kept manifest needs, but for what is as young as these.
    needed = manifest_content.needed_paths(
        [(e, line.store.manifest("op", e).content) for e in line.store.epochs("op")]
    )
    folders = ("/changelog/", "/snapshots/", "/lists/")
    for path in line.store.blobs.list():
        if any(folder in path for folder in folders) and path not in needed:
            assert (names.epoch_of(path) or 0) >= line.store.epochs("op")[0]


@pytest.mark.usefixtures("small_lists")
def test_a_crash_between_a_list_and_its_manifest_leaves_garbage_only() -> None:
    line = started()
    for epoch in range(5):
        line.commit(epoch, changelogs(epoch), [])
    lists = len(line.store.blobs.list(names.list_folder("op")))
    assert isinstance(line.store.blobs, MemoryBlobStore)
    steps: list[str] = []
    for epoch in range(5, 10):
        known = line.store.before("op", epoch - 1)
        manifest = next_manifest(known, epoch, changelogs(epoch), **FIXED, committed_at=epoch)
        line.model[epoch] = manifest.whole()
        for ref in changelogs(epoch):
            line.store.blobs.write(ref.path, b"1")
        before = len(line.store.blobs.list(names.list_folder("op")))
        line.store.blobs.faults.fail_next(after=0)
        with pytest.raises(LocationNotWritable):
            line.store.commit(manifest, steps.append)
        assert len(line.store.blobs.list(names.list_folder("op"))) == before
        line.store.blobs.faults.fail_next(after=1)
        try:
            line.store.commit(manifest, steps.append)
        except LocationNotWritable:  # after its list: the manifest was the second write
            assert len(line.store.blobs.list(names.list_folder("op"))) == before + 1
        line.store.blobs.faults.fail.clear()
        line.check()
        line.commit(epoch, changelogs(epoch), [])
        line.check()
    assert len(line.store.blobs.list(names.list_folder("op"))) > lists
    assert set(steps) == {"before-manifest"}
    for epoch in range(10, 24):
        line.commit(epoch, changelogs(epoch), [])
    line.store.collect_garbage("op", retain=2)
    line.check()


@pytest.mark.usefixtures("small_lists")
def test_a_damaged_list_is_named() -> None:
    line = started()
    for epoch in range(5):
        line.commit(epoch, changelogs(epoch), [])
    blobs = line.store.blobs
    content = line.store.manifest("op", 4).content
    place = content.stored[0].place
    assert place is not None
    good = blobs.read(place.path).to_pybytes()
    for bad in (good[:-1], good.replace(b"w1", b"w2", 1), b""):
        blobs.write(place.path, bad)
        with pytest.raises(CorruptState, match=names.list_folder("op")):
            ManifestReader(blobs).read(names.manifest_path("op", 4))
    blobs.delete(place.path)
    with pytest.raises(CorruptState, match="missing"):
        ManifestReader(blobs).read(names.manifest_path("op", 4))


def test_a_manifest_does_not_grow_with_epochs_and_lanes() -> None:
    """Counts, not times: bytes of each manifest, and how many lists there are to write."""
    wide = KeySpace(4096, 16)
    known: Manifest | None = None
    sizes, lists = [], 0
    blobs = MemoryBlobStore()
    store = StateStore(blobs).open()
    store.open_operator("op", DESCRIPTION, wide)
    for epoch in range(60):
        refs = changelogs(epoch, lanes=100, groups=wide.groups)
        fixed = {**FIXED, "keyspace": wide}
        store.commit(next_manifest(known, epoch, refs, **fixed, committed_at=1))
        known = store.before("op", epoch)
        sizes.append(len(blobs.files[names.manifest_path("op", epoch)]))
        lists = len(blobs.list(names.list_folder("op")))
    assert max(sizes) < manifest_content.ADDED_BYTES_MAX + 2 * sizes[0]
    assert max(sizes[30:]) <= 1.1 * max(sizes[:30])
    assert lists <= 60 / 4
    written = sum(map(len, (blobs.files[path] for path in blobs.list(names.list_folder("op")))))
    assert written < 3 * 60 * sizes[0]
    assert known is not None
    assert len(known.changelogs) == 6000


def test_a_full_list_replaces_lists_that_are_as_large() -> None:
    line = started()
    content = manifest_content.Content()
    stored = 0
    for epoch in range(400):
        content = content.plus(changelogs(epoch), ())
        if len(content.added) == 5:
            fresh = content.to_store()
            place = manifest_content.ListPlace(f"l{epoch}", fresh.size(), 0)
            whole = content.needs_whole()
            content = content.with_stored(
                manifest_content.FileList(fresh.changelogs, fresh.snapshots, place)
            )
            stored += len(fresh.changelogs)
            assert not whole or len(content.stored) == 1
            assert len(content.stored) <= manifest_content.LISTS_MAX
    assert len(content.found()[1]) == 800
    assert stored < 4 * 800
    assert line.store.epochs("op") == []


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ((), "0"),
        ((0,), "1"),
        ((7,), ":7"),
        (tuple(range(32768)), ":0-32767"),
        (tuple(range(3, 32768, 1000)), ":3-32003/1000"),
        ((1, 1000, 5000), ":1,1000,5000"),
        ((1, 2, 3, 500, 510, 520, 900), ":1-3,500-520/10,900"),
    ],
)
def test_key_groups_are_a_short_text(groups: tuple[int, ...], text: str) -> None:
    assert groups_text(groups) == text
    assert parse_groups(text) == groups


def test_any_key_groups_come_back_and_bitmaps_are_still_read() -> None:
    chance = random.Random(1)
    for _ in range(300):
        size = chance.choice([8, 256, 5000])
        groups = tuple(sorted(chance.sample(range(size), chance.randint(0, size))))
        text = groups_text(groups)
        assert parse_groups(text) == groups
        assert len(text) <= 1 + size / 4
        bitmap = f"{sum(1 << group for group in groups):x}"
        assert parse_groups(bitmap) == groups
    for strange in (":", ":3-", ":x", "", ":1,,2"):
        with pytest.raises(ValueError, match=r"key groups|base 16"):
            parse_groups(strange)
