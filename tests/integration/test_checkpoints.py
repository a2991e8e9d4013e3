"""Checkpoint modes on real processes: moves, kills and restarts lose and double nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from tests.integration import counting
from tests.integration.harness import KEYSPACE, Oracle, rows_of
from tests.integration.inprocess import NAME, InProcess
from tests.integration.operators import make_case
from tests.integration.streaming import MovingCluster, keys_of

from anabranch.coordinator.operator_record import written_files
from anabranch.durability.group_restore import load_groups, read_groups, split_by_group
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT
from anabranch.durability.store import StateStore
from anabranch.model.stats import ROWS_DEFERRED
from anabranch.processes.worker_config import CHECKPOINTS
from anabranch.processor.contract import BatchTimes, OperatorStats, Transaction
from anabranch.protocol.epochs import TransactionReport
from anabranch.state.channel import ChannelledState
from anabranch.worker.residency import snapshots
from anabranch.worker.transactions import deferral

WAIT = 60


class Run:
    """Batches, one after the other; every output that a key should have comes once."""

    def __init__(self, folder: Path, checkpoint: str, **settings: Any) -> None:
        self.folder, self.settings = folder, {"checkpoint": checkpoint, **settings}
        self.oracle = Oracle()
        self.epoch = 0
        self.expected: Counter[tuple[int, int]] = Counter()
        self.found: Counter[tuple[int, int]] = Counter()
        self.last: dict[int, int] = {}
        self.outputs: list[tuple[int, int]] = []
        """Of the last batch."""
        self.start()

    def start(self, **settings: Any) -> None:
        self.settings.update(settings)
        self.cluster = MovingCluster(self.folder, **self.settings)

    def restart(self, **settings: Any) -> None:
        self.cluster.stop()
        self.start(**settings)

    def batches(self, count: int) -> None:
        for _ in range(count):
            self.batch(keys_of(self.epoch))

    def batch(self, keys: Iterable[int], lanes: int = 2) -> None:
        keys = list(keys)
        self.expected.update(self.oracle.run_batch(keys).items())
        batch = rows_of(keys)
        with ThreadPoolExecutor(lanes) as pool:
            tasks = [
                pool.submit(self.cluster.run_lane, self.epoch, lane, lanes, batch)
                for lane in range(lanes)
            ]
        rows = [task.result() for task in tasks]
        self.outputs = sorted((row["k"], row["n"]) for some in rows for row in some)
        for row in (row for some in rows for row in some):
            assert row["n"] > self.last.get(row["k"], 0), "out of order, or twice"
            self.last[row["k"]] = row["n"]
            self.found[row["k"], row["n"]] += 1
        self.epoch += 1

    def again(self) -> list[tuple[int, int]]:
        """Outputs of the last batch when it runs once more."""
        epoch = self.epoch - 1
        batch = rows_of(keys_of(epoch))
        with ThreadPoolExecutor(2) as pool:
            lanes = [pool.submit(self.cluster.run_lane, epoch, lane, 2, batch) for lane in (0, 1)]
        return sorted((row["k"], row["n"]) for lane in lanes for row in lane.result())

    def deferred(self) -> int:
        status = self.cluster.coordinator.status()["operators"]["counts"]
        return sum(batch["stats"].get(ROWS_DEFERRED, 0) for batch in status["batches"])

    def until_deferred(self) -> None:
        """Lanes of a batch may come in the order in which nothing waits, but not always."""
        limit = self.epoch + 20
        while not self.deferred():
            assert self.epoch < limit, "no row has waited"
            self.batches(1)

    def end(self) -> None:
        """Whatever waits comes with a few more batches."""
        self.batches(2)
        limit = time.monotonic() + WAIT
        while self.found != self.expected:
            assert time.monotonic() < limit, self.expected - self.found
            self.batch([])
            time.sleep(0.05)
        assert self.last == self.oracle.counts
        self.cluster.stop()
        check_store(self.folder, self.oracle.counts)


def check_store(folder: Path, counts: dict[int, int]) -> None:
    """The last epoch in the store is the state of the sequential run, with nothing that waits."""
    engine = counting.CountingEngine(KEYSPACE)
    with StateStore(str(folder)).open() as store:
        manifest = store.manifest("counts", store.epochs("counts")[-1])
        restored = load_groups(
            store.blobs,
            manifest,
            range(KEYSPACE.groups),
            lambda: ChannelledState(engine.create_group()),
        )
    found: dict[int, int] = {}
    for each in restored.values():
        inner = each.state.inner
        assert isinstance(inner, counting.CountingGroup)
        found.update({key: n for key, (_, n) in inner.counts.items()})
        for batch in each.state.waiting:
            assert batch.is_applied
            for key in batch.rows.column("k").to_pylist() if batch.rows.num_rows else []:
                found[key] = found.get(key, 0) + 1
    assert found == counts


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_moves_and_kills(tmp_path: Path, checkpoint: str) -> None:
    run = Run(tmp_path, checkpoint, snapshot_seconds=0.3)
    run.batches(3)
    run.cluster.rescale(3)
    run.batches(3)
    os.kill(run.cluster.coordinator.status()["workers"]["w1"]["pid"], signal.SIGKILL)
    run.batches(2)
    assert run.cluster.rescale(2, strategy="lazy").wait(WAIT)
    run.batches(3)
    run.end()


@pytest.mark.soak
def test_every_mode_reads_what_the_others_wrote(tmp_path: Path) -> None:
    run = Run(tmp_path, CHECKPOINTS[0])
    for checkpoint in (*CHECKPOINTS, *reversed(CHECKPOINTS)):
        run.restart(checkpoint=checkpoint)
        run.batches(2)
    run.end()


def test_rows_do_not_wait_for_state_on_its_way(tmp_path: Path) -> None:
    run = Run(tmp_path, "unaligned")
    run.batches(3)
    move = run.cluster.rescale(3, strategy="lazy", bytes_per_second=20_000)
    while not move.is_done:
        run.batches(1)
    assert move.report().outcome == "done"
    assert run.deferred() > 0
    run.end()


def test_rows_that_wait_survive_a_restart(tmp_path: Path) -> None:
    run = Run(tmp_path, "unaligned")
    run.batches(3)
    run.restart()  # the state is in the store: the first batch does not wait for it
    run.batches(1)
    assert run.deferred() > 0
    run.restart(checkpoint="changelog")
    run.end()


def test_rows_do_not_wait_for_a_slow_transaction(tmp_path: Path) -> None:
    run = Run(tmp_path, "unaligned", workers=1, definition=counting.Slow())
    run.until_deferred()
    run.end()


def test_rows_are_put_aside_while_another_transaction_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: they do not wait until its thread is free."""
    monkeypatch.setattr(deferral, "TURN_SECONDS", 0.01)
    worker = InProcess(tmp_path, counting.Counting(), -1, checkpoint="unaligned")
    worker.batch(rows_of(range(9)), BatchTimes(0, 0, 0))
    is_applied, go_on, apply = threading.Event(), threading.Event(), worker.slot.engine.apply

    def slow(tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        is_applied.set()
        assert go_on.wait(WAIT)
        return apply(tx, states)

    monkeypatch.setattr(worker.slot.engine, "apply", slow)
    nothing, times = rows_of([]), BatchTimes(1000, 0, 0)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(worker.transaction, nothing, times, 0, 2)
        assert is_applied.wait(WAIT)
        second = pool.submit(worker.transaction, nothing, times, 1, 2)
        done, _ = wait([first, second], 10, FIRST_COMPLETED)
        go_on.set()
        assert done == {second}
        first.result(WAIT)
    worker.close()


def test_full_checkpoints_need_no_changelog(tmp_path: Path) -> None:
    run = Run(tmp_path, "full")
    run.batches(3)
    run.end()
    with StateStore(str(tmp_path)).open() as store:
        manifest = store.manifest("counts", store.epochs("counts")[-1])
    assert not manifest.changelogs
    assert manifest.snapshots


def test_a_full_checkpoint_of_much_state_has_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FILE_BYTES", 1000)
    case = make_case("everything")
    local: dict[str, Any] = {"backend": "rocksdb", "local_dir": str(tmp_path / "local")}
    worker = InProcess(tmp_path / "state", case.definition, -1, checkpoint="full", **local)
    for epoch in range(2):
        rows = case.rows(epoch).combine_chunks().to_batches()[0]
        worker.batch(rows, case.times(epoch))
    slot = worker.slot
    outputs = {id(output): output for output in slot.outputs.values()}.values()
    reports = [TransactionReport("w1", out.groups, out.changelog) for out in outputs]
    changelogs, full = written_files(NAME, reports)
    held = {group: state.export() for group, state in slot.states.items()}
    assert not changelogs
    assert len(full) > 2
    groups = [group for ref in full for group in ref.groups]
    assert len(groups) == len(set(groups)) > len(full)
    for ref in full:
        blob = worker.blobs.read(ref.path)
        files = PageFile(SNAPSHOT, blob, name=ref.path, crc=ref.crc)
        found = read_groups(files, SNAPSHOT, ref.groups, None, KEYSPACE)
        by_group = split_by_group(found, list(ref.groups), KEYSPACE)
        for group in ref.groups:
            for name, table in held[group].items():
                if table.num_rows:
                    assert by_group[group][name].to_pylist() == table.to_pylist()
    # A lane that asks for some of the key groups gets the files of these.
    some = [TransactionReport("w1", (groups[0],), report.changelog) for report in reports]
    assert [ref.groups for ref in written_files(NAME, some)[1]] == [(groups[0],)]
    worker.close()


def test_the_same_rows_wait_when_their_batch_runs_again(tmp_path: Path) -> None:
    """Spark may have written the outputs of the first time, and skip those of the second."""
    run = Run(tmp_path, "unaligned")
    run.batches(3)
    run.restart()
    run.batches(1)
    assert run.deferred() > 0
    first = run.outputs
    for checkpoint in ("changelog", "unaligned"):
        run.restart(checkpoint=checkpoint)
        assert run.again() == first
    run.end()


def test_the_first_batch_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Initial rows come with it, which channels do not keep."""
    monkeypatch.setattr(deferral, "TURN_SECONDS", 0.01)
    worker = InProcess(tmp_path, counting.Counting(), -1, checkpoint="unaligned")
    slot = worker.slot
    with ThreadPoolExecutor(1) as pool:
        with slot.apply_lock:
            slot.is_applying = True  # another transaction, for long
            batch = pool.submit(worker.batch, rows_of([1, 2]), BatchTimes(1000, 0, 0))
            wait([batch], timeout=0.5)
            assert not batch.done()
            slot.is_applying = False
        assert {row["k"] for row in batch.result(WAIT)} == {1, 2}
    worker.close()


@pytest.mark.soak
def test_nothing_waits_where_two_workers_process_the_same_rows(tmp_path: Path) -> None:
    """One of them drops its outputs, so that both must emit them with the same batch."""
    run = Run(tmp_path, "unaligned", workers=1, definition=counting.Slow())
    run.until_deferred()
    move = run.cluster.rescale(2, strategy="replicate")
    while not move.is_done:
        run.batches(1)
    assert move.report().outcome == "done"
    run.batches(2)
    run.end()
