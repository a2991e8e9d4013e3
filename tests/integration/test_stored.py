"""Recovery by key from the store, with real processes and the sequential oracle."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration import counting
from tests.integration.harness import rows_of
from tests.integration.inprocess import InProcess
from tests.integration.operators import CASES, KEYS
from tests.integration.rig import KEYSPACE, Operator, Rig

from anabranch.durability.group_restore import load_groups
from anabranch.durability.savepoint import create_savepoint
from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch
from anabranch.processor.contract import BatchTimes
from anabranch.transport.messages.control import Committed, Loads, Status

ALL = tuple(range(KEYSPACE.groups))
MOVED = (1, 2, 5, 6)
SOAK = pytest.mark.soak
BY_KEY: dict[str, Any] = {"whole_share": 1e9}
"""Small key groups would be read whole otherwise."""

REMOTE = {**BY_KEY, "state": "remote"}
"""Nothing comes in the background."""


def in_store(rig: Rig, worker: str = "w1") -> int:
    """Bins that are missing, over all operators."""
    operators = rig.peers[worker].call_patiently(Status()).operators
    return sum(operator.bins_in_store for operator in operators.values())


def wait_until_here(rig: Rig, worker: str = "w1") -> None:
    deadline = time.monotonic() + 20
    while in_store(rig, worker):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "settings", [BY_KEY, REMOTE, *(pytest.param(s, marks=SOAK) for s in ({}, {"state": "local"}))]
)
def test_batches_go_on_after_a_crash_of_everything(tmp_path: Path, settings: Any) -> None:
    with Rig(tmp_path, workers=1, **settings) as rig:
        for _ in range(6):
            rig.batch()
        rig.restart("w1")
        rig.batch()
        is_by_key = bool(settings.get("whole_share"))
        assert bool(rig.moves("w1").get("keys_from_store")) == is_by_key
        for _ in range(4):
            rig.batch()
        if settings is REMOTE:
            assert in_store(rig) == len(CASES) * KEYSPACE.groups * KEYSPACE.bins
            return
        wait_until_here(rig)
        rig.batch()
        rig.check_state()


LITTLE = {**BY_KEY, "state_memory_bytes": 4 << 10}
"""Less than the state needs."""


@pytest.mark.parametrize("settings", [LITTLE, REMOTE], ids=["hybrid", "remote"])
def test_what_is_cold_leaves_memory_and_comes_back(tmp_path: Path, settings: Any) -> None:
    with Rig(tmp_path, workers=1, **settings) as rig:
        for number in range(14):
            rig.batch()
            # Snapshots of key groups that are partly in the store are whole.
            rig.tell_commit(saves=number in (3, 8))
            evicted = rig.moves("w1").get("bins_evicted", 0)
            assert evicted or number < 3
        moves = rig.moves("w1")
        assert moves["keys_from_store"] > 0
        status = rig.peers["w1"].call_patiently(Status()).operators
        size = sum(operator.bytes for operator in status.values())
        assert size <= 4 << 10 if settings is LITTLE else size < 1 << 10
        assert sum(operator.rows_missed or 0 for operator in status.values()) > 0
        rig.restart("w1")
        for _ in range(3):
            rig.batch()
            rig.tell_commit()
        rig.tell_commit(saves=True)
        rig.batch()
        # All of it is in the store. What has expired since the snapshot, nobody has met yet.
        for operator in rig.operators:
            manifest = rig.store.manifest(operator.name, rig.epoch)
            create = operator.case.definition.open(KEYSPACE).create_group
            restored = load_groups(rig.store.blobs, manifest, ALL, create).values()
            tables = [item for each in restored for item in each.state.export().items()]
            rows = [row for name, table in tables if name != "recent" for row in table.to_pylist()]
            recent = [
                row for name, table in tables if name == "recent" for row in table.to_pylist()
            ]
            assert all(row["expiry_ms"] > 1000 * (rig.epoch - 2) for row in recent)
            rows += [row for row in recent if row["expiry_ms"] > 1000 * rig.epoch]
            assert sorted(map(repr, rows)) == operator.oracle.state()


def test_state_of_an_idle_operator_makes_room(tmp_path: Path) -> None:
    """The limit is for all operators together: the one that runs is not to pay for the others."""
    with Rig(tmp_path, workers=1, **{**BY_KEY, "state_memory_bytes": 156 << 10}) as rig:
        for _ in range(3):
            rig.batch()
            rig.tell_commit()
        assert not in_store(rig)
        idle, busy = rig.operators
        rig.operators = [busy]

        def in_memory(operator: Operator) -> int:
            status = rig.peers["w1"].call_patiently(Status()).operators
            return status[operator.name].bytes

        for _ in range(60):
            rig.batch()
            rig.tell_commit()
            if not in_memory(idle):
                break
        assert not in_memory(idle)
        assert in_memory(busy)


def test_key_groups_come_while_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = InProcess(tmp_path, counting.Counting(), -1, state_memory_bytes=1)
    worker.batch(rows_of(range(100)), BatchTimes(1000, 0, 0))
    states = worker.slot.states
    away: dict[int, Any] = {}

    def load_another(state: counting.CountingGroup) -> int:
        if away:
            group, other = away.popitem()
            states[group] = other
        return 100 * len(state.counts)

    monkeypatch.setattr(counting.CountingGroup, "num_bytes", property(load_another))
    for call in (Loads(), Committed("counts", Epoch(0))):
        away.update({group: states.pop(group) for group in list(states)[16:]})
        worker.call(call)
        assert not away
    worker.close()


@pytest.mark.parametrize(
    "settings",
    [LITTLE, *(pytest.param(settings, marks=SOAK) for settings in (REMOTE, BY_KEY))],
    ids=["hybrid", "remote", "all"],
)
def test_a_restored_savepoint_is_read_by_key(tmp_path: Path, settings: Any) -> None:
    """The first batch too reads what it needs: the savepoint may be larger than memory."""
    with Rig(tmp_path / "old", workers=1) as old:
        for number in range(7):
            old.batch()
            old.tell_commit(saves=number == 3)
        savepoint = create_savepoint(old.store, threading.Lock(), "saved").path
        with Rig(tmp_path / "new", workers=1, restored=(savepoint, old), **settings) as rig:
            bins = len(CASES) * KEYSPACE.groups * KEYSPACE.bins
            first = rig.run(rig.first)
            assert first == rig.expected(rig.first)
            assert 0 < rig.moves("w1")["keys_from_store"] < 2 * KEYS
            if settings is REMOTE:
                assert in_store(rig) == bins
            rig.restart("w1")  # not committed: once more as of the savepoint
            assert rig.run(rig.first) == first
            rig.commit()
            # What is left is as of the savepoint: snapshots have it all the same.
            rig.tell_commit(saves=True)
            for _ in range(5):
                rig.batch()
                rig.tell_commit()
            if settings is BY_KEY:
                wait_until_here(rig)
                rig.batch()
                rig.check_state()
            else:
                assert in_store(rig) > 0
            rig.restart("w1")
            rig.batch()


def test_evicted_key_groups_move(tmp_path: Path) -> None:
    with Rig(tmp_path, **LITTLE) as rig:
        for _ in range(6):
            rig.batch()
            rig.tell_commit()
        assert rig.moves("w1")["bins_evicted"] > 0
        rig.flip(MOVED, "w2", "key")
        for _ in range(3):
            rig.batch()
            rig.tell_commit(saves=True)
        rig.order("w2", "import", MOVED, "w1")
        rig.order("w1", "clean", MOVED, "w2")
        rig.kill("w1")
        rig.version += 1
        rig.routing.update(dict.fromkeys(ALL, "w2"))
        rig.order("w2", "grant", [group for group in ALL if group not in MOVED])
        for _ in range(3):
            rig.batch()
            rig.peers.pop("w1", None)
            rig.tell_commit()


@pytest.mark.parametrize(
    "point",
    [
        "restored",
        "changelog-written",
        *(pytest.param(p, marks=SOAK) for p in ("loaded", "applied")),
    ],
)
def test_killed_while_a_part_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("ANABRANCH_CRASH_AT", f"w2:{point}:3")
    with Rig(tmp_path, workers=2, **BY_KEY) as rig:
        for _ in range(6):
            rig.batch()
        rig.kill("w1")
        rig.version += 1
        rig.routing.update(dict.fromkeys(ALL, "w2"))
        rig.order("w2", "grant", ALL)
        expected = None
        for _ in range(60):
            expected = expected or rig.expected(rig.epoch + 1)
            try:
                outputs = rig.run(rig.epoch + 1)
            except AnabranchError:
                break
            assert outputs == expected
            rig.commit()
            expected = None
            time.sleep(0.05)
        else:
            pytest.fail("it never died")
        rig.restart("w2")
        assert rig.run(rig.epoch + 1) == (expected or rig.expected(rig.epoch + 1))
        rig.commit()
        rig.batch()
        wait_until_here(rig, "w2")
        rig.batch()  # what has expired goes when a transaction meets it
        rig.check_state()


def test_a_batch_again_while_a_part_is_missing(tmp_path: Path) -> None:
    with Rig(tmp_path, workers=1, **REMOTE) as rig:
        for _ in range(5):
            rig.batch()
        rig.restart("w1")
        first = rig.run(5)
        assert first == rig.expected(5)
        assert rig.run(5) == first  # from the cache
        rig.restart("w1")
        assert rig.run(5) == first
        rig.commit()
        rig.batch()
        assert rig.run(6)  # committed, and again: answered from the cache
        rig.batch()


@pytest.mark.parametrize(
    ("settings", "arrival"),
    [
        pytest.param(BY_KEY, "key"),
        pytest.param(REMOTE, "group"),
        *(pytest.param(BY_KEY, arrival, marks=SOAK) for arrival in ("block", "group", "bin")),
        *(pytest.param(REMOTE, arrival, marks=SOAK) for arrival in ("block", "bin", "key")),
    ],
)
def test_key_groups_move_while_a_part_is_missing(
    tmp_path: Path, arrival: str, settings: Any
) -> None:
    with Rig(tmp_path, **settings) as rig:
        for _ in range(6):
            rig.batch()
        rig.restart("w1", "w2")
        rig.batch()
        rig.flip(MOVED, "w2", arrival)
        if arrival == "block":  # transactions wait for it
            rig.order("w2", "import", MOVED, "w1")
        rig.batch()
        rig.batch()
        rig.order("w2", "import", MOVED, "w1")
        rig.order("w1", "clean", MOVED, "w2")
        rig.batch()
        rig.flip(MOVED, "w1", arrival)
        if arrival == "block":
            rig.order("w1", "import", MOVED, "w2")
        rig.batch()
        rig.order("w1", "import", MOVED, "w2")
        rig.order("w2", "clean", MOVED, "w1")
        rig.batch()
        if settings is BY_KEY:
            wait_until_here(rig)
            rig.batch()
            rig.check_state()


@pytest.mark.parametrize("arrival", ["bin", pytest.param("key", marks=SOAK)])
def test_the_source_of_a_move_dies_and_the_store_takes_its_place(
    tmp_path: Path, arrival: str
) -> None:
    with Rig(tmp_path, **BY_KEY) as rig:
        for _ in range(6):
            rig.batch()
        rig.flip(ALL, "w2", arrival)
        rig.batch()
        rig.kill("w1")
        for _ in range(3):
            rig.batch()
        moves = rig.moves("w2")
        assert moves["from_store"] > 0
        wait_until_here(rig, "w2")
        rig.batch()  # what has expired goes when a transaction meets it
        rig.check_state()
