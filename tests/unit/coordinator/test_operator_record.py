"""What the coordinator remembers of an operator's epochs."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.integration.counting import Counting

from anabranch.coordinator import steady_clock
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.durability.manifest import DEFERRED, Manifest
from anabranch.durability.manifest_content import Content
from anabranch.errors import AnabranchError
from anabranch.model.keyspace import KeySpace
from anabranch.protocol.epochs import TransactionReport


def operator() -> OperatorRecord:
    return OperatorRecord("counts", Counting(), cast(Any, None), [], 1)


def manifest(epoch: int, extra: dict[str, Any]) -> Manifest:
    return Manifest("counts", None, epoch, KeySpace(8, 4), {}, Content(), 0, extra)


def test_an_epoch_that_exists_has_settled_which_rows_wait() -> None:
    known = operator()
    assert known.waits(5, is_shadowed=False) is None
    known.exists(manifest(5, {DEFERRED: [1, 3]}))
    assert known.waits(5, is_shadowed=False) == [1, 3]
    assert known.waits(5, is_shadowed=True) == [1, 3]
    assert known.waits(6, is_shadowed=False) is None
    known.exists(manifest(6, {}))
    assert known.waits(6, is_shadowed=False) == []


def test_no_rows_wait_where_two_workers_process_them() -> None:
    assert operator().waits(5, is_shadowed=True) == []


def test_rows_that_wait_are_noted_in_every_mode() -> None:
    reports = [TransactionReport("w1", (1, 2), None, (2,)), TransactionReport("w2", (0,), None)]
    assert operator().notes(1, "changelog", reports) == {"checkpoint": "unaligned", DEFERRED: [2]}
    assert operator().notes(1, "independent", reports)["checkpoint"] == "independent"
    assert operator().notes(1, "changelog", reports[1:]) == {}


def test_a_batch_takes_from_its_first_task_to_its_commit() -> None:
    known = operator()
    known.note_begin(1, attempt=0, asked=steady_clock.now())
    known.note_begin(1, attempt=1, asked=steady_clock.now() - 5)  # it was held back
    seconds = known.note_commit(1)
    assert seconds is not None
    assert seconds >= 5
    assert len(known.timings) == 1


def test_a_task_that_begins_twice_is_refused() -> None:
    known = operator()
    known.check_begin(1, attempt=0)
    known.note_begin(1, attempt=0, asked=steady_clock.now())
    with pytest.raises(AnabranchError):
        known.check_begin(1, attempt=0)
    known.check_begin(1, attempt=1)
    known.check_begin(2, attempt=0)


def test_a_lane_that_runs_again_and_again_is_no_sign_of_life() -> None:
    known = operator()
    known.note_begin(1, attempt=0, asked=0.0)
    began = known.alive_at
    assert began > 0
    known.note_finish(0, {"rows": 1})
    ended = known.alive_at
    assert ended > began
    known.note_begin(1, attempt=1, asked=0.0)
    known.note_finish(0, {"rows": 2})
    assert known.alive_at == ended
    assert known.lane_stats == {0: {"rows": 2}}


def test_what_a_batch_did_is_known_once_all_lanes_have_ended() -> None:
    known = operator()
    known.note_begin(1, attempt=0, asked=0)
    known.note_finish(0, {"rows_updated": 3, "apply_ms": 5})
    assert known.batch_stats(2) is None
    known.note_finish(1, {"rows_updated": 4, "apply_ms": 2})
    assert known.batch_stats(2) == {"rows_updated": 7, "apply_ms": 5}
    known.note_begin(2, attempt=1, asked=0)
    assert known.batch_stats(2) is None
