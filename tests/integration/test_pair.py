"""Moves at awkward moments: one worker is held up while the other one goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.counting import Counting, CountingEngine
from tests.integration.harness import Cluster
from tests.integration.pair import ALL, KEYSPACE, MOVED, NAME, Pair, keys_of, rows_of
from tests.integration.watch import Watch

from anabranch.durability import group_restore as restore
from anabranch.errors import AnabranchError
from anabranch.model.ids import WorkerId
from anabranch.transport.messages.control import SetRate
from anabranch.transport.messages.state import Fetch, GoneHead, GroupRequest, Need, SliceHead
from anabranch.worker.moves import exports

INDEPENDENT: dict[str, Any] = {
    "state": "local",
    "checkpoint": "independent",
    "snapshot_seconds": 30.0,
}


def counted(times: int) -> dict[int, int]:
    return dict.fromkeys(keys_of(MOVED).tolist(), times)


def test_a_copy_made_anew_waits_for_the_shadow_on_the_one_before(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        pair.w1.exchange(0, ALL, 1)
        pair.order(pair.w2, "copy", 2)
        with pair.w2.slot.apply_lock:  # another lane is being applied
            pair.w2.exchange(1, [MOVED], 1, shadow=True)
            pair.w2.wait(busy=True)
            pair.w1.exchange(1, ALL, 1)
            pair.w1.worker._exports._logs.drop(NAME, None)  # as if it had become too long
            pair.order(pair.w2, "catch-up", 3)
        pair.w2.wait(busy=False)
        pair.flip()
        # All of it comes from the other worker: there is no manifest in the store.
        assert pair.w2.exchange(2, [MOVED], 6)[0] == counted(3)


def test_an_import_waits_for_a_shadow_that_began_before_the_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pair(tmp_path, state="local") as pair, ThreadPoolExecutor(1) as pool:
        pair.w1.exchange(0, ALL, 1)
        pair.order(pair.w2, "copy", 2)
        with pair.w2.slot.apply_lock:
            pair.w2.exchange(1, [MOVED], 1, shadow=True)
            pair.w2.wait(busy=True)
            pair.w1.exchange(1, ALL, 1)
            pair.w1.worker._exports._logs.drop(NAME, None)
            pair.flip()
            waits = Watch(monkeypatch, pair.w2.worker._core, "wait_idle", pair.w2.is_busy)
            importing = pool.submit(pair.order, pair.w2, "import", 6)
            waits.wait()
            assert not importing.done()
        importing.result(20)
        assert (waits.before, waits.after) == ([True], [False])
        pair.w2.wait(busy=False)
        assert pair.w2.exchange(2, [MOVED], 6)[0] == counted(3)


def test_a_rate_is_kept_and_can_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pair(tmp_path) as pair, ThreadPoolExecutor(1) as pool:
        pair.w1.exchange(0, ALL, 1)
        limiter = pair.w2.worker._orders._limiter
        held_up = Watch(monkeypatch, limiter, "take", lambda: limiter.is_limited)
        # A byte a second: without the change of rate it takes many minutes.
        copying = pool.submit(pair.order, pair.w2, "copy", 2, rate=1)
        held_up.wait()
        assert pair.w1.exchange(1, ALL, 1)[0]  # the source goes on
        assert not copying.done()
        pair.w2.worker.call(SetRate(None))
        assert copying.result(20)["groups"] == 1
        assert (held_up.before[0], held_up.after[0]) == (True, False)


class SlowEngine(CountingEngine):
    """Dawdles after it has changed the state, if told to."""

    goes_on: threading.Event | None = None
    has_changed = threading.Event()

    def apply(self, tx: Any, states: Any) -> Any:
        stats = super().apply(tx, states)
        if SlowEngine.goes_on is not None:
            SlowEngine.has_changed.set()
            SlowEngine.goes_on.wait(20)
        return stats


class Slow(Counting):
    engine = SlowEngine


def test_nothing_is_exported_while_a_shadow_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key group is on its way to w2, and shall come back by `replicate` already."""
    monkeypatch.setattr(exports, "FROZEN_SLICE_BYTES", 400)
    bins = tuple(range(KEYSPACE.bins))
    wanted = GroupRequest(MOVED, None, None, "s", bins, Need.ALL, bins)
    with Pair(tmp_path, Slow()) as pair:
        pair.w1.exchange(0, ALL, 1)
        pair.flip()
        address = pair.w2.server.address
        fetch = Fetch(NAME, 1, WorkerId("w2"), address, 4, None, (wanted,))
        items = pair.w1.worker._exports.fetch(fetch)
        sent = [next(items)]
        monkeypatch.setattr(SlowEngine, "goes_on", threading.Event())
        pair.w1.exchange(1, [MOVED], 9, shadow=True)
        assert SlowEngine.has_changed.wait(20)
        sent += items
        assert SlowEngine.goes_on is not None
        SlowEngine.goes_on.set()
        pair.w1.wait(busy=False)
    assert [type(head) for head, _ in sent] == [SliceHead, GoneHead]
    assert {row["n"] for table in sent[0][1].values() for row in table.to_pylist()} == {1}


def test_an_owner_refuses_at_once_while_its_own_transaction_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction may be waiting for the worker that asks: both would wait for each other."""
    bins = tuple(range(KEYSPACE.bins))
    wanted = GroupRequest(MOVED, None, None, "s", bins, Need.ALL, bins)
    with Pair(tmp_path, Slow()) as pair, ThreadPoolExecutor(1) as pool:
        pair.w1.exchange(0, ALL, 1)
        monkeypatch.setattr(SlowEngine, "has_changed", threading.Event())
        monkeypatch.setattr(SlowEngine, "goes_on", threading.Event())
        running = pool.submit(pair.w1.exchange, 1, ALL, 1)
        assert SlowEngine.has_changed.wait(20)
        address = pair.w2.server.address
        fetch = Fetch(NAME, 1, WorkerId("w2"), address, 1, None, (wanted,))  # not newer
        heads = [type(head) for head, _ in pair.w1.worker._exports.fetch(fetch)]
        assert not running.done()
        assert SlowEngine.goes_on is not None
        SlowEngine.goes_on.set()
        assert running.result(20)[0]
    assert heads == [GoneHead]


def test_a_copy_that_came_to_nothing_leaves_no_log(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        pair.w1.exchange(0, ALL, 1)
        pair.order(pair.w2, "copy", 2)
        assert pair.w1.worker._exports._logs._logs
        pair.order(pair.w1, "clean", 3)
        pair.order(pair.w2, "clean", 4)
        assert not pair.w1.worker._exports._logs._logs


def test_an_attempt_after_rows_that_could_not_be_kept(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows_of()
        raise MemoryError("malloc of size 1 failed")

    with Pair(tmp_path) as pair:
        with pytest.raises(MemoryError):
            pair.w1.exchange(0, ALL, 1, broken())
        counts, _ = pair.w1.exchange(0, ALL, 1, attempt=2)
        assert set(counts.values()) == {1}


def test_rows_do_not_pile_up_in_replicas(tmp_path: Path) -> None:
    with Pair(tmp_path, **INDEPENDENT) as pair:
        pair.w1.exchange(0, ALL, 1)
        pair.order(pair.w2, "copy", 2)
        for epoch in range(1, 6):
            pair.w1.exchange(epoch, ALL, 1)
            pair.order(pair.w2, "catch-up", 2 + epoch)
            assert not pair.w2.slot.states[MOVED].waiting
        pair.order(pair.w2, "grant", 10)
        pair.order(pair.w1, "release", 11)
        assert pair.w2.exchange(6, [MOVED], 12)[0] == counted(7)


@pytest.mark.parametrize("settings", [INDEPENDENT, {"state": "local"}, {}])
@pytest.mark.parametrize("arrival", ["key", "bin"])
@pytest.mark.parametrize("first", range(2))
def test_a_source_dies_when_a_part_has_come(
    tmp_path: Path, settings: dict[str, Any], arrival: str, first: int
) -> None:
    keys = keys_of(MOVED)
    some = keys[KEYSPACE.bin_of(keys) == first]
    assert 0 < len(some) < len(keys)
    with Pair(tmp_path, **settings) as pair:
        for epoch in (0, 1):
            pair.commit(epoch, pair.w1.exchange(epoch, ALL, 1)[1])
        pair.flip(arrival=arrival)
        counts, reports = pair.w2.exchange(2, [MOVED], 6, iter([rows_of(some)]))
        assert counts == dict.fromkeys(some.tolist(), 3)
        pair.commit(2, reports)
        pair.w1.close()
        counts, _ = pair.w2.exchange(3, [MOVED], 6)
        assert counts == {key: 3 + int(key in some) for key in keys.tolist()}


def test_what_the_source_does_not_have_is_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart most of the state may be in the store only: files are opened once."""
    with Pair(tmp_path, state="local") as pair:
        for epoch in range(3):
            pair.commit(epoch, pair.w1.exchange(epoch, ALL, 1)[1])
        pair.w2.slot.committed = 2
        pair.w1.server.stop()
        pair.order(pair.w2, "grant", 4, groups=ALL)
        opened: list[str] = []
        read = restore._open

        def watched(store: Any, kind: bytes, ref: Any, *rest: Any) -> Any:
            opened.append(ref.path)
            return read(store, kind, ref, *rest)

        monkeypatch.setattr(restore, "_open", watched)
        assert pair.order(pair.w2, "import", 4, groups=ALL)["from_store"] == len(ALL)
        assert len(opened) == len(set(opened)) == 3
        assert set(pair.w2.exchange(3, ALL, 4)[0].values()) == {4}


def test_unexpected_failures_of_a_commit_do_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = np.arange(20).tolist()
    with Cluster(tmp_path) as cluster:
        store = cluster.coordinator._store
        with monkeypatch.context() as broken:
            broken.setattr(store, "commit", lambda *_: 1 // 0)
            with pytest.raises(AnabranchError, match="ZeroDivisionError"):
                cluster.run_batch(0, keys)
        assert cluster.run_batch(0, keys) == dict.fromkeys(keys, 1)
