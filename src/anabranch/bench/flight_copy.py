"""A plain copy over Arrow Flight between two processes: the yardstick of how fast state can move.

Run as a module it is the serving process: it holds the bytes and tells its port.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError

BATCH_BYTES = 4 << 20
ROW_BYTES = 1024


def payload_batches(size: int) -> list[pa.RecordBatch]:
    """Key, count and payload columns of about `size` bytes together."""
    rows_a_batch = BATCH_BYTES // ROW_BYTES
    total = max(1, size // ROW_BYTES)
    noise = np.random.default_rng(7).bytes(BATCH_BYTES)
    batches = []
    for first in range(0, total, rows_a_batch):
        rows = min(rows_a_batch, total - first)
        offsets = np.arange(rows + 1, dtype=np.int32) * (ROW_BYTES - 16)
        data = pa.py_buffer(noise[: int(offsets[-1])])
        payload = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(offsets.tobytes()), data]
        )
        keys = pa.array(np.arange(first, first + rows, dtype=np.int64))
        batches.append(pa.record_batch([keys, keys, payload], names=["k", "n", "payload"]))
    return batches


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the same batches to everyone who asks."""

    def __init__(self, size: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batches = payload_batches(size)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """All of them."""
        schema = self._batches[0].schema
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, self._batches))


def copy_rates(size: int, repeats: int = 3) -> list[float]:
    """Bytes a second of copies of `size` bytes out of another process into this one's memory.

    Into memory that is new to the process each time, as state is to the worker that it moves to.
    """
    command = [sys.executable, "-m", "anabranch.bench.flight_copy", str(size)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        if not port:
            raise AnabranchError("The process that serves the plain copy has ended at once.")
        with flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
            return [_copy(client) for _ in range(repeats)]
    finally:
        server.kill()
        server.communicate()


def _copy(client: Any) -> float:
    started = time.monotonic()
    table = client.do_get(flight.Ticket(b"")).read_all()
    rate: float = table.nbytes / (time.monotonic() - started)
    del table
    # Else the next copy goes into pages that this one has touched, at twice the rate.
    pa.default_memory_pool().release_unused()
    return rate


def _serve(size: int) -> None:
    server = _Server(size)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()  # until the other process is gone
    server.shutdown()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
