"""Made-up timelines: batches of even length under a load, with a stall where one is wanted."""

from __future__ import annotations

from anabranch.loadtest.latency import Batch, Timeline
from anabranch.loadtest.schedule import OpenLoop

START = 1000.0
RATE = 100.0
LOAD = OpenLoop(500, START, RATE)


def back_to_back(
    seconds: float, until: float, stall: tuple[float, float] | None = None
) -> Timeline:
    """Batches one after the other; a batch that begins in `stall` is done only after its end."""
    batches, row, now = [], LOAD.first_row, START
    while now < START + until:
        end_row = LOAD.end_of_batch(row, now)
        done = now + seconds
        if stall and stall[0] <= now - START < stall[1]:
            done = START + stall[1] + seconds
        if end_row > row:
            batches.append(Batch(row, end_row, now, done))
        row, now = end_row, done
    return Timeline(LOAD, batches)
