"""Rows that wait: not for ever, and at one worker only."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration import counting
from tests.integration.counting import CountingGroup
from tests.integration.harness import rows_of as counting_rows
from tests.integration.inprocess import InProcess
from tests.integration.operators import make_case
from tests.integration.test_checkpoints import WAIT, Run
from tests.integration.test_cuts import LAST, CaseCluster, Plain, rows_of, said

from anabranch.processor.contract import BatchTimes
from anabranch.state.channel import ChannelledState


@pytest.mark.soak
def test_a_batch_a_run_is_enough(tmp_path: Path) -> None:
    """After a restart state is in the store, where rows may wait already: they are not joined."""
    run = Run(tmp_path, "unaligned")
    run.batches(2)
    for _ in range(5):
        run.restart()
        before = run.expected.copy()
        run.batches(1)
        last = run.expected - before
        assert (run.expected - run.found).total() <= last.total()
    run.end()


@pytest.mark.parametrize("checkpoint", ["unaligned", "independent"])
def test_old_and_new_owner_both_process(tmp_path: Path, checkpoint: str) -> None:
    """The new one must not keep for later what the old one has applied, nor the other way."""
    run = Run(tmp_path, checkpoint, definition=counting.Slow())
    run.batches(2)
    for workers in (3, 2):
        move = run.cluster.rescale(workers, strategy="replicate")
        while not move.is_done:
            run.batches(1)
        assert move.wait(WAIT)
    run.end()


SOAK = pytest.mark.soak
LITTLE: dict[str, Any] = {"state_memory_bytes": 2 << 10, "whole_share": 1e9}
"""Less than the state needs, and small key groups would be read whole otherwise."""

REMOTE: dict[str, Any] = {"state": "remote", "whole_share": 1e9}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("windows", LITTLE),
        ("everything", REMOTE),
        *(
            pytest.param(*both, marks=SOAK)
            for both in (("windows", REMOTE), ("everything", LITTLE))
        ),
    ],
)
def test_rows_wait_under_a_memory_limit(tmp_path: Path, name: str, settings: Any) -> None:
    """Rows that wait need their keys and what was due at their clocks, not whole key groups."""
    case = make_case(name)
    plain, outputs = Plain(case), []
    runs = [range(3), range(3, LAST - 1), range(LAST - 1, LAST), range(LAST, LAST + 1)]
    for epochs in runs:
        # The last one is aligned, so that nothing is left in channels.
        mode = "changelog" if epochs == runs[-1] else "unaligned"
        with CaseCluster(tmp_path, case, checkpoint=mode, **settings) as cluster:
            outputs += [cluster.run_lanes(epoch, 2, rows_of(case, epoch)) for epoch in epochs]
    assert said(outputs) == said(plain.outputs)


def test_rows_that_wait_bring_their_keys_only(tmp_path: Path) -> None:
    run = Run(tmp_path, "unaligned")
    run.batch(range(500))
    run.restart()
    run.batch(range(10))
    assert not run.outputs, "no row has waited"
    run.cluster.stop()
    worker = InProcess(tmp_path, counting.Counting(), 1, checkpoint="unaligned", state="remote")
    outputs = worker.batch(counting_rows(range(100, 110)), BatchTimes(1002, 0, 0))
    needed = {*range(10), *range(100, 110)}
    assert {row["k"]: row["n"] for row in outputs} == dict.fromkeys(needed, 2)
    inner = [cast(ChannelledState, state).inner for state in worker.slot.states.values()]
    assert {key for state in inner for key in cast(CountingGroup, state).counts} == needed
    worker.close()
