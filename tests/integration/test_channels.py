"""Rows that wait: not for ever, and at one worker only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import counting
from tests.integration.test_checkpoints import WAIT, Run


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
