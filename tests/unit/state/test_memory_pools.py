"""State and what is sent have memory of their own."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processes.environment import worker_environment
from anabranch.state.columnar.arena import Arena
from anabranch.state.columnar.layout import SECTION, ColumnarLayout
from anabranch.state.columnar.table import GroupTable
from anabranch.state.memory_pools import BATCHES, PARCELS, STATE
from anabranch.transport.parcel import pack

VALUE = b"x" * 1024

IS_APART = STATE.backend_name != BATCHES.backend_name
"""Not if Arrow was built without it, or the user has chosen it for everything."""


@pytest.mark.skipif(not IS_APART, reason="Arrow has one allocator for everything")
def test_state_takes_nothing_from_batches() -> None:
    """Also what merging and compacting leave behind, which is kept for long."""
    gc.collect()
    of_batches, of_state = BATCHES.bytes_allocated(), STATE.bytes_allocated()
    arena = Arena(pa.binary())
    for _ in range(20):
        arena.append(pa.array([VALUE] * 100))
    arena.append(pa.chunked_array([pa.array([VALUE] * 100)] * 2))
    assert arena.num_bytes == _bytes_of(arena)
    arena.compact(np.arange(0, 2000, 2, dtype=np.int32))
    assert arena.take(np.array([7], np.int32)).to_pylist() == [VALUE]
    assert arena.num_bytes == _bytes_of(arena) > 1000 * len(VALUE)
    assert BATCHES.bytes_allocated() - of_batches < 100_000
    assert STATE.bytes_allocated() - of_state >= 1000 * len(VALUE)
    arena.clear()
    assert STATE.bytes_allocated() == of_state


def _bytes_of(arena: Arena) -> int:
    return sum(int(chunk.nbytes) for chunk in arena._chunks) + int(arena._offsets.nbytes)


@pytest.mark.skipif(PARCELS.backend_name == BATCHES.backend_name, reason="the user's choice")
def test_what_is_sent_takes_nothing_from_batches() -> None:
    """Also where values are in several chunks."""
    keys = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    layout = ColumnarLayout(keys, pa.schema([pa.field("v", pa.binary())]), None)
    table = GroupTable(layout, KeySpace(1, 4))
    for first, count in ((0, 1000), (1000, 200), (1200, 50)):
        numbers = np.arange(first, first + count)
        table.install({SECTION: pa.table({HASH: numbers, "k": numbers, "v": [VALUE] * count})})
    before = BATCHES.total_bytes_allocated()
    sizes, _ = pack(table.export_packed([1, 2]))
    assert BATCHES.total_bytes_allocated() - before < 100_000
    assert sizes["packed"] > 600 * len(VALUE)


RELEASED = """
import os
import numpy as np
import pyarrow as pa
from anabranch.state.memory_pools import BATCHES, STATE

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20

def use(pool, size, count):
    buffers = [pa.allocate_buffer(size, memory_pool=pool) for _ in range(count)]
    for buffer in buffers:
        np.frombuffer(buffer, np.uint8)[:] = 1

if os.fork():  # allocators have threads that are not in workers, which are forked
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
before = resident_mb()
use(STATE, 12 << 20, 8)
after_state = resident_mb()
use(BATCHES, 2 << 20, 40)
print(after_state - before, resident_mb() - after_state)
"""


@pytest.mark.skipif(not IS_APART, reason="Arrow has one allocator for everything")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_of_state_is_given_back_and_that_of_batches_is_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RELEASED],
        env=worker_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    of_state, of_batches = map(int, done.stdout.split())
    assert of_state < 30
    assert of_batches > 60
