"""Key groups move between real worker processes; orders and lanes are driven by hand."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.integration.operators import CASES, Case
from tests.integration.rig import Rig

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch
from anabranch.processor.contract import BatchTimes
from anabranch.state.backend import BACKENDS
from anabranch.transport.messages.control import Committed
from anabranch.transport.messages.orders import LoadOrder, SaveOrder

MOVED = (1, 2, 5, 6)
"""Two key groups of each lane."""

OPERATORS = len(CASES)
PLACES = OPERATORS * len(MOVED)


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rig, "backend", request.param)


ON_BOTH_BACKENDS = pytest.mark.parametrize("backend", BACKENDS, indirect=True)
ON_BOTH_IN_SOAK = pytest.mark.parametrize(
    "backend", ["memory", pytest.param("rocksdb", marks=pytest.mark.soak)], indirect=True
)


@ON_BOTH_BACKENDS
def test_copy_catch_up_and_flip(backend: None, tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        for _ in range(3):
            rig.batch()
        copied = rig.order("w2", "copy", MOVED, "w1")
        assert copied["groups"] == PLACES
        assert copied["rows"] > 0
        assert rig.order("w2", "copy", MOVED, "w1") == {}  # all here already
        rig.batch()
        rig.batch()
        assert rig.order("w2", "lag", MOVED, "w1") == {"behind": PLACES}
        caught = rig.order("w2", "catch-up", MOVED, "w1")
        assert caught["delta_rows"] > 0
        assert "rows" not in caught, "state was copied anew"
        assert rig.order("w2", "lag", MOVED, "w1") == {"behind": 0}
        rig.batch()
        rig.flip(MOVED, "w2")
        rig.batch()  # the handshake brings the last delta
        rig.batch()
        moves = rig.moves("w2")
        assert moves["on_demand_groups"] == PLACES
        assert not moves.get("from_store")
        assert rig.order("w2", "import", MOVED, "w1").get("groups", 0) == 0
        rig.order("w1", "clean", MOVED, "w2")
        rig.order("w2", "clean", MOVED, "w1")
        rig.batch()
        rig.check_state()


@ON_BOTH_BACKENDS
@pytest.mark.parametrize("arrival", ["block", "group", "bin", "key"])
def test_flip_without_a_copy(backend: None, tmp_path: Path, arrival: str) -> None:
    with Rig(tmp_path) as rig:
        for _ in range(5):
            rig.batch()
        rig.flip(MOVED, "w2", arrival)
        for _ in range(3):
            rig.batch()
        moves = rig.moves("w2")
        assert not moves.get("from_store")
        name = {"bin": "on_demand_bins", "key": "on_demand_keys"}.get(arrival, "on_demand_groups")
        assert moves[name] > 0
        if arrival == "key":
            assert moves["due_pushed"] > 0
        imported = rig.order("w2", "import", MOVED, "w1", order="hot", by_bin=True)
        assert imported[name] == moves[name], "the report has what transactions fetched"
        assert imported["bytes"] >= moves["bytes"]
        if arrival in ("key", "bin"):
            assert imported["groups"] > 0
        assert not imported.get("left")
        rig.order("w1", "clean", MOVED, "w2")
        for _ in range(3):
            rig.batch()
        assert not rig.moves("w2").get("from_store")
        rig.check_state()


@pytest.mark.parametrize("order", ["index", "hot", "waiting"])
@pytest.mark.parametrize("by_bin", [False, True])
def test_import_before_the_first_batch(tmp_path: Path, order: str, by_bin: bool) -> None:
    with Rig(tmp_path) as rig:
        for _ in range(3):
            rig.batch()
        rig.flip(MOVED, "w2", "block")
        imported = rig.order("w2", "import", MOVED, "w1", order=order, by_bin=by_bin)
        assert imported["groups"] == PLACES
        assert imported["bins"] == 16 * PLACES
        rig.order("w1", "clean", MOVED, "w2")
        for _ in range(3):
            rig.batch()
        moves = rig.moves("w2")
        assert not moves.get("from_store")
        assert not moves.get("on_demand_groups")
        rig.check_state()


ARRIVALS = pytest.mark.parametrize("arrival", ["block", "group", "bin", "key"])


@ARRIVALS
def test_rows_in_flight_are_forwarded(tmp_path: Path, arrival: str) -> None:
    """A lane that began before the flip goes on to the old owner."""
    with Rig(tmp_path) as rig:
        for _ in range(3):
            rig.batch()
        before = dict(rig.routing)
        outputs = rig.run(3, before, before_end=lambda: rig.flip(MOVED, "w2", arrival))
        assert outputs == rig.expected(3)
        assert {r.report.worker for r in rig.reports} == {"w1", "w2"}
        # Lanes that run again come with either routing; both get the same.
        assert rig.run(3, before) == outputs
        assert rig.run(3) == outputs
        rig.commit()
        rig.batch()
        assert not rig.moves("w2").get("from_store")
        rig.order("w2", "import", MOVED, "w1")
        rig.order("w1", "clean", MOVED, "w2")
        forwarded = rig.moves("w1")["rows_forwarded"]
        rig.batch(before)  # still on its way when the move was over
        assert rig.moves("w1")["rows_forwarded"] > forwarded
        rig.batch()
        rig.check_state()


@ARRIVALS
def test_a_timer_at_the_old_owner_for_a_window_that_has_moved(tmp_path: Path, arrival: str) -> None:
    """The batch has no rows: only what is due makes the new owner ask for state."""
    with Rig(tmp_path) as rig:
        for _ in range(7):
            rig.batch()
        rig.flip(MOVED, "w2", arrival)
        outputs = rig.run(7)
        assert outputs == rig.expected(7)
        assert all(outputs.values()), "nothing was due"
        assert any(r.report.worker == "w2" and r.stats["timers_fired"] for r in rig.reports)
        rig.commit()
        if arrival in ("bin", "key"):
            assert rig.moves("w2")["due_pushed"] > 0
        rig.batch()
        rig.order("w2", "import", MOVED, "w1")
        rig.batch()
        rig.check_state()


@ARRIVALS
def test_a_large_backlog_of_due_timers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrival: str
) -> None:
    """The watermark jumps far ahead in the very batch in which key groups have moved."""
    times = Case.times

    def jumping(case: Case, epoch: int) -> BatchTimes:
        return times(case, epoch + 1000 * (epoch >= 6))

    monkeypatch.setattr(Case, "times", jumping)
    with Rig(tmp_path) as rig:
        for _ in range(6):
            rig.batch()
        rig.flip(MOVED, "w2", arrival)
        rig.batch()  # everything is due at once, and fires once
        fired = sum(r.stats["timers_fired"] for r in rig.reports if r.report.worker == "w2")
        assert fired > 50
        for _ in range(3):
            rig.batch()
        rig.order("w2", "import", MOVED, "w1")
        rig.check_state()


def test_rows_complete_before_the_release_are_applied_at_the_source(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.batch()
        before = dict(rig.routing)
        rig.flip(MOVED, "w2", release=False)
        rig.batch(before)  # all of it at the source, which does not know yet
        assert {r.report.worker for r in rig.reports} == {"w1"}
        rig.order("w1", "release", MOVED, "w2")
        rig.batch()
        assert rig.moves("w2")["on_demand_groups"] == PLACES
        rig.check_state()


@ARRIVALS
def test_source_killed_before_the_handshake(tmp_path: Path, arrival: str) -> None:
    groups = tuple(range(8))
    with Rig(tmp_path) as rig:
        for _ in range(4):
            rig.batch()
        rig.flip(groups, "w2", arrival)
        rig.kill("w1")
        rig.batch()
        assert rig.moves("w2")["from_store"] == 8 * OPERATORS
        rig.batch()
        rig.check_state()


@ON_BOTH_IN_SOAK
@pytest.mark.parametrize("arrival", ["bin", "key"])
@pytest.mark.parametrize("later", ["batch", "import"])
def test_source_killed_while_a_part_is_missing(
    backend: None, tmp_path: Path, arrival: str, later: str
) -> None:
    groups = tuple(range(8))
    with Rig(tmp_path) as rig:
        for _ in range(5):
            rig.batch()
        rig.flip(groups, "w2", arrival)
        rig.batch()
        rig.batch()
        assert not rig.moves("w2").get("from_store")
        rig.kill("w1")
        if later == "import":
            # The last epoch that exists is known from the coordinator's call after each commit.
            for operator in CASES:
                told = Committed(operator, Epoch(rig.epoch))
                assert not rig.peers["w2"].call_patiently(told).snapshots
            imported = rig.order("w2", "import", groups, "w1")
            assert imported["from_store"] > 0
        for _ in range(4):
            rig.batch()
        assert rig.moves("w2")["from_store"] > 0
        rig.check_state()


@ON_BOTH_BACKENDS
def test_there_and_back_and_on(backend: None, tmp_path: Path) -> None:
    with Rig(tmp_path, workers=3) as rig:
        for _ in range(3):
            rig.batch()
        rig.order("w2", "copy", MOVED, "w1")
        rig.batch()
        rig.flip(MOVED, "w2")
        rig.batch()
        rig.flip(MOVED, "w1", "key")  # nothing was cleaned: frozen state lies at w1
        rig.batch()
        rig.flip(MOVED, "w3", "bin")  # and w1 has only a part of it
        rig.batch()
        rig.batch()
        rig.flip(MOVED, "w2")
        rig.order("w2", "import", MOVED, "w3")
        for worker, peer in (("w1", "w2"), ("w2", "w3"), ("w3", "w2")):
            rig.order(worker, "clean", MOVED, peer)
        rig.batch()
        rig.batch()
        rig.check_state()


def test_a_batch_again_after_the_flip(tmp_path: Path) -> None:
    """State that is ahead of the batch's base is not taken from anybody."""
    with Rig(tmp_path) as rig:
        for _ in range(3):
            rig.batch()
        rig.order("w2", "copy", MOVED, "w1")
        outputs = rig.run(3)
        rig.flip(MOVED, "w2", "key")
        assert rig.run(3) == outputs == rig.expected(3)
        assert rig.moves("w2")["from_store"] == PLACES
        rig.commit()
        rig.batch()
        rig.check_state()


@ON_BOTH_IN_SOAK
def test_replicas_survive_a_source_that_loads_anew(backend: None, tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.batch()
        rig.batch()
        rig.order("w2", "copy", MOVED, "w1")
        rig.run(2)
        # The batch runs again with more rows: the cache does not answer, the source loads anew.
        for operator in rig.operators:
            operator.case.repeat = 2
        assert rig.run(2) == rig.expected(2)
        caught = rig.order("w2", "catch-up", MOVED, "w1")
        assert caught["rows"] > 0, "the log does not continue the replica"
        rig.commit()
        rig.flip(MOVED, "w2")
        rig.batch()
        rig.check_state()


@ON_BOTH_IN_SOAK
def test_shadow_transactions_keep_replicas_up_to_date(backend: None, tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        for _ in range(3):
            rig.batch()
        rig.order("w2", "copy", MOVED, "w1")
        shadow = dict.fromkeys(MOVED, "w2")
        for _ in range(4):
            rig.batch(shadow=shadow)
            assert {r.report.worker for r in rig.reports} == {"w1"}
        deadline = time.monotonic() + 20
        shadowed, behind = 0, 1
        while behind and time.monotonic() < deadline:
            counters = rig.order("w2", "lag", MOVED, "w1")
            shadowed, behind = shadowed + counters.get("shadowed", 0), counters["behind"]
            time.sleep(0.05)
        assert (behind, shadowed) == (0, 4 * PLACES)
        copied = rig.moves("w2")["rows"]
        rig.flip(MOVED, "w2")
        rig.batch()
        moves = rig.moves("w2")
        assert moves["rows"] == copied, "nothing but the handshake is left"
        assert moves["on_demand_groups"] == PLACES
        assert not moves.get("delta_rows")
        rig.batch()
        rig.check_state()


def test_ready_key_groups_first(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.flip((0, 1, 2, 3), "w2")
        rig.batch()
        rig.batch()
        rig.flip((5, 6), "w2", ready_first=True)
        outputs = rig.run(2)
        assert outputs == rig.expected(2)
        assert rig.order("w2", "import", (5, 6), "w1")["ready_first"] == OPERATORS * 2  # lanes
        by_worker = [r for r in rig.reports if r.report.worker == "w2"]
        assert sorted(g for r in by_worker for g in r.report.groups) == sorted(
            OPERATORS * [0, 1, 2, 3, 5, 6]
        )
        assert rig.run(2) == outputs  # from the cache
        rig.commit()
        rig.batch()
        rig.check_state()


def test_state_is_waited_for_under_block(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        for _ in range(4):
            rig.batch()
        rig.flip(MOVED, "w2", "block")
        imported: dict[str, int] = {}
        slow = threading.Thread(
            target=lambda: imported.update(rig.order("w2", "import", MOVED, "w1", rate=1))
        )
        slow.start()
        time.sleep(0.3)
        rig.batch()  # what a transaction waits for is not held back
        slow.join(20)
        assert not slow.is_alive()
        moves = rig.moves("w2")
        assert imported["waited"] == moves["waited"] > 0
        assert moves["groups"] == PLACES
        rig.check_state()


def test_an_import_leaves_alone_what_was_granted_after_it(tmp_path: Path) -> None:
    """Asked for its state, the source would let go of it before lanes go to the target."""
    with Rig(tmp_path) as rig:
        rig.batch()
        old = rig.version
        rig.version += 1
        rig.order("w2", "grant", MOVED, "w1")
        assert not rig.order("w2", "import", MOVED, "w1", version=old).get("groups")
        rig.version += 1
        rig.order("w2", "release", MOVED, "w1")  # the flip is revoked
        rig.batch()
        assert {report.report.worker for report in rig.reports} == {"w1"}
        rig.check_state()


def test_clean_stops_a_copy(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.batch()
        counters: list[dict[str, int]] = []
        copy = threading.Thread(
            target=lambda: counters.append(rig.order("w2", "copy", MOVED, "w1", rate=10))
        )
        copy.start()
        time.sleep(0.5)
        rig.order("w2", "clean", MOVED, "w1")
        rig.order("w1", "clean", MOVED, "w2")
        copy.join(10)
        assert not copy.is_alive()
        assert counters[0].get("groups", 0) < PLACES
        rig.batch()


@ON_BOTH_BACKENDS
def test_save_and_load(backend: None, tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        for _ in range(3):
            rig.batch()
        saved = rig.peers["w1"].call_patiently(SaveOrder(dict.fromkeys(CASES, Epoch(2))))
        assert saved.counters["groups"] == 8 * OPERATORS
        assert {name: len(files) for name, files in saved.snapshots.items()} == dict.fromkeys(
            CASES, 1
        )
        again = rig.peers["w1"].call_patiently(SaveOrder({})).snapshots
        assert not any(again.values()), "nothing has changed since"
        rig.version += 1
        rig.order("w2", "grant", range(8))
        loaded = rig.peers["w2"].call_patiently(LoadOrder(dict.fromkeys(CASES, Epoch(2))))
        assert loaded.counters["loaded"] == 8 * OPERATORS
        rig.routing = dict.fromkeys(range(8), "w2")
        rig.kill("w1")
        rig.batch()
        assert not any(r.stats.get("load_ms") for r in rig.reports)
        rig.check_state()


def test_orders_to_nobody_fail(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.batch()
        assert rig.order("w2", "connect", (), "w1") == {"connected": 1}
        rig.kill("w1")
        for name in ("connect", "copy", "catch-up", "lag"):
            with pytest.raises(AnabranchError):
                rig.order("w2", name, MOVED, "w1")
