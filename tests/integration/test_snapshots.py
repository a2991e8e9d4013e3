"""Snapshots that fail, and snapshots of state that is older than its operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from tests.integration import counting
from tests.integration.harness import KEYSPACE, rows_of
from tests.integration.inprocess import GROUPS, NAME, InProcess
from tests.unit.processor.rows.support import define

from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.group_restore import read_groups
from anabranch.durability.manifest import FileRef, next_manifest
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT
from anabranch.durability.store import StateStore
from anabranch.errors import LocationNotWritable
from anabranch.model.ids import Epoch
from anabranch.model.keyspace import HASH
from anabranch.processor.contract import BatchTimes
from anabranch.transport.messages.control import Committed
from anabranch.transport.messages.orders import SaveOrder
from anabranch.worker.residency import snapshots

TIMES = BatchTimes(1000, 0, 0)


def refs_of(texts: list[str]) -> list[FileRef]:
    return [FileRef.from_json(json.loads(text)) for text in texts]


@pytest.mark.parametrize("order", ["committed", "save"])
def test_the_next_round_saves_what_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(snapshots, "FILE_BYTES", 1)  # a file for each key group
    blobs = MemoryBlobStore()
    by_clock = {"checkpoint": "independent", "snapshot_seconds": 1e-9}
    worker = InProcess(tmp_path, counting.Counting(), -1, blobs, **by_clock)
    worker.batch(rows_of(range(200)), TIMES)
    committed = Committed(NAME, Epoch(0))
    message = committed if order == "committed" else SaveOrder({NAME: Epoch(0)})

    blobs.faults.fail_next()
    with pytest.raises(LocationNotWritable):
        worker.call(message)
    blobs.faults.fail_next(after=3)
    if order == "committed":  # it says what it has
        first = worker.call(message).snapshots
        assert len(first) == 3
    else:
        with pytest.raises(LocationNotWritable):
            worker.call(message)
        first = []
    rest = worker.call(committed).snapshots
    saved = [group for ref in refs_of([*first, *rest]) for group in ref.groups]
    assert sorted(saved) == GROUPS
    assert not worker.call(committed).snapshots
    worker.close()


class Before(StatefulProcessor):
    """Has a variable more than it needs."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")
        self.old = handle.getValueState("old", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        stored = self.count.get()
        total = (stored[0] if stored else 0) + len(list(rows))
        self.count.update((total,))
        self.note()
        yield Row(k=key[0], n=total)

    def note(self) -> None:
        self.old.update((1,))


class After(Before):
    """Does without it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")
        handle.deleteIfExists("old")

    def note(self) -> None:
        pass


def test_a_variable_that_was_deleted_is_not_saved_again(tmp_path: Path) -> None:
    """... from files that still have it, of which only some keys are in memory."""
    before, after = (
        define(each, "k long", ["k"], "k long, n long", "none") for each in (Before(), After())
    )
    with StateStore(str(tmp_path)).open() as store:
        store.open_operator(NAME, before.description, KEYSPACE)
        worker = InProcess(tmp_path, before, -1)
        worker.batch(rows_of(range(200)), TIMES)
        taken = refs_of(worker.call(SaveOrder({})).snapshots[NAME])
        worker.close()
        about: dict[str, Any] = {"operator": NAME, "query_id": None, "keyspace": KEYSPACE}
        about |= {"description": before.description, "committed_at": 0}
        store.commit(next_manifest(None, 0, [], taken, **about))

        worker = InProcess(tmp_path, after, 0, state="remote")
        assert worker.batch(rows_of([7]), TIMES) == [{"k": 7, "n": 2}]
        saved = refs_of(worker.call(SaveOrder({})).snapshots[NAME])
        sections: dict[str, pa.Table] = {}
        for ref in saved:
            file = PageFile(SNAPSHOT, worker.blobs.read(ref.path), name=ref.path, crc=ref.crc)
            sections |= read_groups(file, SNAPSHOT, ref.groups, None, KEYSPACE)
        worker.close()
    assert "old" not in sections
    group = KEYSPACE.group_of(rows_of([7]).column(HASH).to_numpy())[0]
    assert [ref.groups for ref in saved] == [(group,)]
    mine = KEYSPACE.group_of(rows_of(range(200)).column(HASH).to_numpy()) == group
    assert sections["count"].num_rows == mine.sum()
