"""Every checkpoint of every mode is a consistent cut, whatever happened before it.

Real processes run batches while key groups move, a worker is killed and everything restarts. Then
each epoch is restored from its files, as a restart would, and goes on: outputs and state come to
the end of a run in which nothing happened.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.integration.harness import KEYSPACE
from tests.integration.inprocess import NAME, InProcess
from tests.integration.operators import Case, make_case
from tests.integration.streaming import MovingCluster
from tests.unit.processor.columnar.support import MemoryTransaction

from anabranch.durability.manifest import Manifest
from anabranch.model.keyspace import GROUP
from anabranch.processes.worker_config import CHECKPOINTS
from anabranch.processor.contract import BatchTimes, RowChunk
from anabranch.state.channel import ChannelledState

LAST = 10
"""The epoch after those that really run: what waits in the last of them comes out in it."""

GROUPS = tuple(range(KEYSPACE.groups))
SNAPSHOT_SECONDS = 0.1
WAIT = 60

Said = dict[str, list[str]]
"""Outputs by key (and window), in their order."""


class CaseClock:
    """Clocks of a case instead of Spark's."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        return self._case.times(epoch)

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        pass

    def is_running(self, operator: str, query_id: str) -> bool | None:
        return None


class CaseCluster(MovingCluster):
    """Runs the rows of a case."""

    def __init__(self, folder: Path, case: Case, **settings: Any) -> None:
        self.clock = CaseClock(case)
        super().__init__(folder, 2, case.definition, **settings)


def rows_of(case: Case, epoch: int) -> pa.RecordBatch:
    rows = case.rows(epoch).combine_chunks()
    arrays = [column.combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


class Eventful:
    """The run with everything that may happen; its outputs, epoch by epoch."""

    def __init__(self, folder: Path, case: Case, mode: str) -> None:
        self._folder, self._case = folder, case
        self._settings = {"checkpoint": mode, "snapshot_seconds": SNAPSHOT_SECONDS}
        self.outputs: list[list[dict[str, Any]]] = []
        self.manifests: list[Manifest] = []
        self._start()
        self._batches(3)
        # Slow, and rows that come meanwhile need what it moves.
        move = self._cluster.rescale(3, strategy="order-unaware", bytes_per_second=30_000)
        self._batches(3)
        assert move.wait(WAIT)
        os.kill(self._cluster.coordinator.status()["workers"]["w1"]["pid"], signal.SIGKILL)
        self._batches(2)
        self._cluster.stop()
        self._start()
        self._batches(LAST - len(self.outputs))
        store = self._cluster.store
        self.manifests = [store.manifest(NAME, epoch) for epoch in range(LAST)]
        self._cluster.stop()

    def _start(self) -> None:
        self._cluster = CaseCluster(self._folder, self._case, **self._settings)

    def _batches(self, count: int) -> None:
        for _ in range(count):
            epoch = len(self.outputs)
            rows = rows_of(self._case, epoch)
            with ThreadPoolExecutor(2) as pool:
                lanes = [
                    pool.submit(self._cluster.run_lane, epoch, lane, 2, rows) for lane in (0, 1)
                ]
            self.outputs.append([row for lane in lanes for row in lane.result()])
            time.sleep(SNAPSHOT_SECONDS / 2)  # for snapshots, which never delay a batch


class Plain:
    """The sequential run in memory."""

    def __init__(self, case: Case) -> None:
        self._engine = case.definition.open(KEYSPACE)
        self._states = {group: self._engine.create_group() for group in GROUPS}
        self.outputs: list[list[dict[str, Any]]] = []
        for epoch in range(LAST + 1):
            chunk = RowChunk(GROUPS, case.rows(epoch))
            tx = MemoryTransaction(epoch, GROUPS, case.times(epoch), [chunk])
            for state in self._states.values():
                state.begin()
            self._engine.apply(tx, self._states)
            tables = [table.drop_columns([GROUP]) for table in tx.outputs]
            self.outputs.append([row for table in tables for row in table.to_pylist()])

    def state(self) -> list[str]:
        return entries(self._states.values())


def entries(states: Iterable[Any]) -> list[str]:
    """What states hold; without what has expired, which goes when somebody looks at it."""
    return sorted(
        repr(row)
        for state in states
        for name, table in state.export().items()
        if name != "recent"
        for row in table.to_pylist()
    )


def said(outputs: Iterable[list[dict[str, Any]]]) -> Said:
    found: Said = {}
    for row in (row for epoch in outputs for row in epoch):
        found.setdefault(f"{row['k']} {row.get('window')}", []).append(repr(row))
    return found


def continued(
    folder: Path, case: Case, mode: str, epoch: int
) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """Outputs after an epoch that was restored, and the state at the end."""
    worker = InProcess(folder, case.definition, epoch, checkpoint=mode, state="local")
    rest = range(epoch + 1, LAST + 1)
    outputs = [worker.batch(rows_of(case, later), case.times(later)) for later in rest]
    states = [cast(ChannelledState, state) for state in worker.slot.states.values()]
    assert not any(state.waiting for state in states)
    found = entries(state.inner for state in states)
    worker.close()
    return outputs, found


def waiting_rows(folder: Path, case: Case, epoch: int) -> tuple[int, int]:
    """Rows in channels as of an epoch: those that wait, and those that are applied again."""
    worker = InProcess(folder, case.definition, epoch, state="local")
    worker.slot.load(worker.blobs, GROUPS, epoch)
    channels = [
        some
        for state in worker.slot.states.values()
        for some in cast(ChannelledState, state).waiting
    ]
    worker.close()
    waits = sum(some.rows.num_rows for some in channels if not some.is_applied)
    return waits, sum(some.rows.num_rows for some in channels if some.is_applied)


@pytest.mark.parametrize(
    "mode",
    [pytest.param(m, marks=pytest.mark.soak if m == "full" else []) for m in CHECKPOINTS],
)
@pytest.mark.parametrize("name", ["windows", pytest.param("everything", marks=pytest.mark.soak)])
def test_every_epoch_leads_to_the_same_end(tmp_path: Path, name: str, mode: str) -> None:
    case = make_case(name)
    plain, run = Plain(case), Eventful(tmp_path, case, mode)
    expected, state = said(plain.outputs), plain.state()
    assert any(expected.values())
    for epoch in range(LAST):
        later, found = continued(tmp_path, case, mode, epoch)
        assert said([*run.outputs[: epoch + 1], *later]) == expected, f"outputs from {epoch}"
        assert found == state, f"state from {epoch}"
    check_kind(tmp_path, case, mode, run.manifests)


def check_kind(folder: Path, case: Case, mode: str, manifests: list[Manifest]) -> None:
    """Whether the epochs were those of the mode: what they consist of, and what waited in them."""
    if mode == "changelog":
        assert all(m.changelogs for m in manifests)
    if mode == "full":
        assert any(m.snapshots and not m.changelogs for m in manifests)
    if mode == "unaligned":
        assert any(waiting_rows(folder, case, m.epoch)[0] for m in manifests)
    if mode == "independent":  # a snapshot, and the buffer of rows since
        both = [m.epoch for m in manifests if m.snapshots and m.changelogs]
        assert any(waiting_rows(folder, case, epoch)[1] for epoch in both)
