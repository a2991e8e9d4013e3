"""next_manifest and restore_plan against a naive model that never drops anything."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.durability.samples import SMALL

from anabranch.durability.manifest import (
    MANIFEST_FORMAT,
    FileRef,
    Manifest,
    next_manifest,
    restore_plan,
    with_snapshots,
)
from anabranch.durability.manifest_content import Content
from anabranch.errors import CorruptState, FormatNotSupported
from anabranch.model.keyspace import KeySpace

FIXED: dict[str, Any] = {
    "operator": "op",
    "query_id": "q",
    "keyspace": SMALL,
    "description": {"kind": "count"},
    "committed_at": 5,
}
GROUPS = range(SMALL.groups)
some_groups = st.sets(st.sampled_from(GROUPS), min_size=1).map(sorted).map(tuple)


def ref(path: str, epoch: int, *groups: int) -> FileRef:
    return FileRef(path, epoch, 1, 1, tuple(groups))


def paths(refs: tuple[FileRef, ...]) -> list[str]:
    return [item.path for item in refs]


def test_changelogs_add_up() -> None:
    first = next_manifest(None, 0, [ref("c0", 0, 0, 1)], **FIXED)
    second = next_manifest(first, 1, [ref("c1b", 1, 1), ref("c1a", 1, 0)], **FIXED)
    assert paths(second.changelogs) == ["c0", "c1a", "c1b"]
    assert [paths(plan.changelogs) for plan in restore_plan(second, [0, 1, 2])] == [
        ["c0", "c1a"],
        ["c0", "c1b"],
        [],
    ]


def test_a_snapshot_replaces_what_it_holds_for_its_groups_only() -> None:
    first = next_manifest(None, 0, [ref("c0", 0, 0, 1)], **FIXED)
    second = next_manifest(first, 1, [ref("c1", 1, 0, 1)], **FIXED)
    third = next_manifest(second, 2, [ref("c2", 2, 0, 1)], [ref("s1", 1, 0)], **FIXED)
    assert third.snapshots == (ref("s1", 1, 0),)
    assert paths(third.changelogs) == ["c0", "c1", "c2"]
    assert [paths(plan.changelogs) for plan in restore_plan(third, [0, 1])] == [
        ["c2"],
        ["c0", "c1", "c2"],
    ]
    fourth = next_manifest(third, 3, [], [ref("s3", 3, 0, 1)], **FIXED)
    assert (fourth.snapshots, fourth.changelogs) == ((ref("s3", 3, 0, 1),), ())


def test_a_snapshot_leaves_the_other_groups_of_a_restored_savepoint_alone() -> None:
    """Whose files have negative epochs."""
    first = next_manifest(None, 0, [ref("c0", 0, 0, 1)], **FIXED)
    origin = replace(
        first,
        epoch=-1,
        content=Content.of([ref("c3", -3, 0, 1, 2), ref("c1", -1, 0, 1)], [ref("s", -4, 0, 1, 2)]),
    )
    later = next_manifest(origin, 0, [ref("c0", 0, 0, 1)], [ref("s0", 0, 0)], **FIXED)
    plans = {plan.group: plan for plan in restore_plan(later, [0, 1, 2])}
    assert [p.snapshot.path for p in plans.values() if p.snapshot] == ["s0", "s", "s"]
    assert {group: paths(plan.changelogs) for group, plan in plans.items()} == {
        0: [],
        1: ["c3", "c1", "c0"],
        2: ["c3"],
    }


def test_a_manifest_of_the_format_before_goes_on() -> None:
    """It listed only the key groups for which a changelog still counts."""
    first = next_manifest(None, 1, [ref("c1", 1, 0, 1)], [ref("s0", 0, 0)], **FIXED)
    content = Content.of([ref("c0", 0, 1), *first.changelogs], first.snapshots)
    old = replace(first, content=content, format=1)
    read = Manifest.decode(old.encode(), "m")
    assert (read, read.format) == (old, 1)
    for later in (next_manifest(read, 2, [], [], **FIXED), with_snapshots(read, [ref("s1", 1, 2)])):
        assert later.format == MANIFEST_FORMAT
        plans = restore_plan(later, [0, 1])
        assert [paths(plan.changelogs) for plan in plans] == [["c1"], ["c0", "c1"]]


def test_a_late_snapshot_is_ignored_where_a_newer_one_is_known() -> None:
    first = next_manifest(None, 5, [], [ref("new", 5, 0)], **FIXED)
    second = next_manifest(first, 6, [], [ref("old", 3, 0, 1), ref("same", 5, 0)], **FIXED)
    assert second.snapshots == (ref("old", 3, 1), ref("new", 5, 0))


def test_executing_an_epoch_again_replaces_its_changelogs() -> None:
    first = next_manifest(None, 0, [ref("c0", 0, 0)], [ref("s", 0, 1)], **FIXED)
    next_manifest(first, 1, [ref("c1-first", 1, 0)], **FIXED)
    again = next_manifest(first, 1, [ref("c1-again", 1, 0)], **FIXED)
    assert paths(again.changelogs) == ["c0", "c1-again"]
    assert paths(again.snapshots) == ["s"]


def test_impossible_inputs_are_bugs() -> None:
    first = next_manifest(None, 1, [], **FIXED)
    for previous, epoch, changelogs, snapshots in (
        (first, 1, [], []),
        (first, 2, [ref("c", 1, 0)], []),
        (first, 2, [], [ref("s", 3, 0)]),
    ):
        with pytest.raises(AssertionError):
            next_manifest(previous, epoch, changelogs, snapshots, **FIXED)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_against_the_naive_model(data: st.DataObject) -> None:
    changelogs: dict[int, list[FileRef]] = {}  # of the execution that counts
    snapshots: dict[int, list[FileRef]] = {}  # by the epoch whose manifest got them
    manifests: dict[int, Manifest] = {}
    epoch, files = -1, 0
    for _ in range(data.draw(st.integers(1, 12), label="executions")):
        if epoch < 0 or not data.draw(st.booleans(), label="again"):
            epoch += 1
        changelogs[epoch] = [
            ref(f"c{files + number}", epoch, *groups)
            for number, groups in enumerate(data.draw(st.lists(some_groups, max_size=3)))
        ]
        files += 10
        snapshots[epoch] = [
            ref(f"s{files + number}", data.draw(st.integers(0, epoch)), *groups)
            for number, groups in enumerate(data.draw(st.lists(some_groups, max_size=2)))
        ]
        files += 10
        manifests[epoch] = next_manifest(
            manifests.get(epoch - 1), epoch, changelogs[epoch], snapshots[epoch], **FIXED
        )
        # At once, as the coordinator does: the next one uses the texts of this one.
        assert Manifest.decode(manifests[epoch].encode(), "m") == manifests[epoch]
    for known, manifest in manifests.items():
        taken = [item for at in range(known + 1) for item in snapshots[at]]
        logged = [item for at in range(known + 1) for item in changelogs[at]]
        for plan in restore_plan(manifest, GROUPS):
            own = [item.epoch for item in taken if plan.group in item.groups]
            since = max(own, default=-1)
            assert (plan.snapshot.epoch if plan.snapshot else -1) == since
            needed = [c for c in logged if plan.group in c.groups and c.epoch > since]
            assert sorted(paths(plan.changelogs)) == sorted(paths(tuple(needed)))
            assert [c.epoch for c in plan.changelogs] == sorted(c.epoch for c in needed)
        # Nothing is listed that no group needs.
        plans = restore_plan(manifest, GROUPS)
        read = {item.path for plan in plans for item in plan.changelogs}
        read |= {plan.snapshot.path for plan in plans if plan.snapshot}
        assert read == {item.path for item in manifest.files}
        assert len({item.path for item in manifest.files}) == len(manifest.files)


def test_manifest_is_plain_json_with_compact_groups() -> None:
    wide = KeySpace()
    files = [FileRef(f"c{lane}", 0, 1, 1, tuple(range(lane, 256, 8))) for lane in range(8)]
    manifest = next_manifest(None, 0, files, **{**FIXED, "keyspace": wide}, extra={"a": [1]})
    body = json.loads(manifest.encode())["body"]
    assert body["operator"] == "op"
    assert body["extra"] == {"a": [1]}
    assert len(manifest.encode()) < 8 * 100 + 300
    assert Manifest.decode(manifest.encode(), "m") == manifest


def test_every_damage_of_a_manifest_is_found() -> None:
    content = next_manifest(None, 3, [ref("c", 3, 1)], **FIXED).encode()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pytest.raises(CorruptState, match="the-manifest"):
            Manifest.decode(bytes(damaged), "the-manifest")
        with pytest.raises(CorruptState, match="the-manifest"):
            Manifest.decode(content[:place], "the-manifest")


def test_a_newer_or_strange_manifest_is_refused() -> None:
    from anabranch.durability.documents import seal

    with pytest.raises(FormatNotSupported, match="the-manifest"):
        Manifest.decode(seal({"format": 4}), "the-manifest")
    strange: list[Any] = [{}, [], {"format": 1}, {"format": 2}, {"format": "x"}, None]
    for body in strange:
        with pytest.raises(CorruptState, match="the-manifest"):
            Manifest.decode(seal(body), "the-manifest")
