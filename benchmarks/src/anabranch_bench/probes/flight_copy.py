"""A plain copy over Arrow Flight between two processes: the yardstick of how fast state can move.

Run as a module it is one of them: the one that holds the bytes and tells its port, or one that
copies them and tells at which rate.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError

BATCH_BYTES = 4 << 20
ROW_BYTES = 1024
FROM = "from"


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


class _CopyServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the same batches to everyone who asks."""

    def __init__(self, size: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batches = payload_batches(size)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """All of them."""
        schema = self._batches[0].schema
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, self._batches))


def copy_rates(size: int, repeats: int = 3) -> list[float]:
    """Bytes a second of copies of `size` bytes from one process into another's memory.

    Into a new process each time: state is new to the worker that it moves to, and a copy into
    memory that an earlier one has touched is twice as fast.
    """
    with _process(str(size)) as server:
        port = _line_of(server)
        rates = []
        for _ in range(repeats):
            with _process(FROM, port) as client:
                rates.append(float(_line_of(client)))
        return rates


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "anabranch_bench.probes.flight_copy", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise AnabranchError("A process of the plain copy has ended at once.")
    return line


def _tell(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _serve(size: int) -> None:
    server = _CopyServer(size)
    _tell(server.port)
    sys.stdin.read()  # until the other process is gone
    server.shutdown()


def _copy(port: str) -> None:
    with flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
        client.wait_for_available()
        started = time.monotonic()
        table = client.do_get(flight.Ticket(b"")).read_all()
        _tell(table.nbytes / (time.monotonic() - started))


if __name__ == "__main__":
    if sys.argv[1] == FROM:
        _copy(sys.argv[2])
    else:
        _serve(int(sys.argv[1]))
