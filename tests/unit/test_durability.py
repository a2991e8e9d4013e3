"""Random lives of a state location: epochs, re-executions, snapshots, collections and restarts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.durability.samples import (
    SMALL,
    DictState,
    by_group,
    changes,
    entries,
    ordered_by_bin,
)

from anabranch.durability import names
from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.group_restore import load_groups
from anabranch.durability.manifest import FileRef, file_ref, next_manifest
from anabranch.durability.snapshot import encode_snapshot
from anabranch.durability.store import StateStore

OPERATOR = "an operator/ü"
SECTIONS = ("value", "timers")
Content = dict[tuple[str, int], int]
some_hashes = st.sets(st.integers(-40, 40), max_size=10)


class History(RuleBasedStateMachine):
    """The model is the content as of each epoch; every epoch that exists must load as it."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs = MemoryBlobStore()
        self.store = StateStore(self.blobs).open()
        self.store.open_operator(OPERATOR, {"kind": "test"}, SMALL)
        self.model: dict[int, Content] = {-1: {}}
        self.epoch = -1
        self.files = 0
        self.pending: list[FileRef] = []
        self.kept_min = 0

    def execute(self, epoch: int, upserts: set[int], deletes: set[int], lanes: int) -> None:
        self.files += 1
        content = dict(self.model[epoch - 1])
        refs = []
        for lane in range(lanes):
            groups = [group for group in range(SMALL.groups) if group % lanes == lane]
            put = [h for h in upserts if h % SMALL.groups in groups]
            drop = [h for h in deletes - upserts if h % SMALL.groups in groups]
            sections = {name: changes(put, drop, self.files) for name in SECTIONS}
            path = names.changelog_path(OPERATOR, epoch, lane, "w", "i", self.files)
            buffers = encode_changelog(sections, SMALL)
            self.blobs.write(path, buffers)
            refs.append(file_ref(path, epoch, buffers, groups))
        for name in SECTIONS:
            content.update({(name, h): self.files for h in upserts})
            for hash_ in deletes - upserts:
                content.pop((name, hash_), None)
        self.model[epoch] = content
        self.commit(epoch, refs)

    def commit(self, epoch: int, changelogs: list[FileRef]) -> None:
        finished = [ref for ref in self.pending if self.store.accepts(OPERATOR, ref)]
        self.pending = []
        previous = self.store.manifest(OPERATOR, epoch - 1) if epoch else None
        fixed: dict[str, Any] = {"description": {"kind": "test"}, "committed_at": epoch}
        manifest = next_manifest(
            previous,
            epoch,
            changelogs,
            finished,
            operator=OPERATOR,
            query_id=None,
            keyspace=SMALL,
            **fixed,
        )
        self.store.commit(manifest)
        self.kept_min = min(self.kept_min + (epoch > self.epoch), 10)
        self.epoch = epoch

    @rule(upserts=some_hashes, deletes=some_hashes, lanes=st.integers(1, 4))
    def next_epoch(self, upserts: set[int], deletes: set[int], lanes: int) -> None:
        self.execute(self.epoch + 1, upserts, deletes, lanes)

    @precondition(lambda self: self.epoch >= 0)
    @rule(upserts=some_hashes, deletes=some_hashes, lanes=st.integers(1, 4))
    def last_epoch_again(self, upserts: set[int], deletes: set[int], lanes: int) -> None:
        # A snapshot of the first execution is worthless now.
        self.pending = [ref for ref in self.pending if ref.epoch < self.epoch]
        self.execute(self.epoch, upserts, deletes, lanes)

    @precondition(lambda self: self.epoch >= 0)
    @rule(
        groups=st.sets(st.integers(0, SMALL.groups - 1), min_size=1),
        back=st.integers(0, 5),
    )
    def snapshot(self, groups: set[int], back: int) -> None:
        epoch = max(0, self.epoch - back)
        content = self.model[epoch]
        self.files += 1
        exported: dict[int, dict[str, Any]] = {group: {} for group in groups}
        for name in SECTIONS:
            inside = by_group([h for section, h in content if section == name], SMALL)
            for group in groups:
                hashes = ordered_by_bin(inside[group], SMALL)
                table = entries(hashes)
                values = [content[name, hash_] for hash_ in hashes]
                exported[group][name] = table.set_column(
                    2, table.field(2), pa.array(values, pa.int64())
                )
        path = names.snapshot_path(OPERATOR, epoch, "w", "i", self.files)
        buffers = encode_snapshot(exported, SMALL)
        self.blobs.write(path, buffers)
        self.pending.append(file_ref(path, epoch, buffers, groups))

    @rule(retain=st.sampled_from([2, 3, 10]))
    def collect(self, retain: int) -> None:
        self.store.collect_garbage(OPERATOR, retain)
        self.kept_min = min(self.kept_min, retain)
        self.check(self.store.epochs(OPERATOR))

    @rule()
    def restart(self) -> None:
        self.blobs.release_holds()
        self.blobs = self.blobs.twin()
        self.store = StateStore(self.blobs).open()
        self.store.open_operator(OPERATOR, {"kind": "test"}, SMALL)
        self.pending = []

    @invariant()
    def the_last_epoch_loads(self) -> None:
        epochs = self.store.epochs(OPERATOR)
        assert len(epochs) >= self.kept_min
        assert (epochs[-1] if epochs else -1) == self.epoch
        self.check(epochs[-1:])

    def teardown(self) -> None:
        self.check(self.store.epochs(OPERATOR))

    def check(self, epochs: list[int]) -> None:
        for epoch in epochs:
            manifest = StateStore(self.blobs).manifest(OPERATOR, epoch)
            states = load_groups(self.blobs, manifest, range(SMALL.groups), DictState)
            merged: Content = {}
            for group, restored in states.items():
                assert all(hash_ % SMALL.groups == group for _, hash_ in restored.state.content)
                merged.update(restored.state.content)
            assert merged == self.model[epoch]


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
