"""Useful seconds of workers, from what transactions report."""

from __future__ import annotations

from anabranch.coordinator.useful_time import UsefulTime
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.messages.lanes import TransactionDone


def done(worker: str, apply_ms: int) -> TransactionDone:
    return TransactionDone(TransactionReport(worker, (0,), None), {"apply_ms": apply_ms})


def test_lanes_of_a_worker_add_up_and_a_lane_that_runs_again_counts_once() -> None:
    useful = UsefulTime()
    useful.begin(7)
    useful.finish(0, [done("w1", 100), done("w2", 0)])
    useful.finish(1, [done("w1", 900)])
    useful.finish(1, [done("w1", 200)])
    useful.commit(3, 10.0, 0.5, 42, 1000)
    (batch,) = useful.batches
    assert batch.useful == {"w1": 0.3, "w2": 0.0}
    assert (batch.epoch, batch.rows, batch.version, batch.state_bytes) == (3, 42, 7, 1000)
    useful.begin(8)
    useful.commit(4, 11.0, 0.5, 0, 1000)
    assert useful.batches[-1].useful == {}
