"""Record batches in memory up to a limit, beyond that in an unnamed file.

The file has no name, so the kernel frees it when the process ends, however it ends.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator

import pyarrow as pa

from anabranch.errors import AnabranchError

MEMORY_BYTES_MAX = 128 << 20


class Spool:
    """An append-only sequence of record batches that can be read any number of times."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.num_rows = 0
        self.num_bytes = 0
        self._memory_bytes_max = memory_bytes_max
        self._batches: list[pa.RecordBatch] = []
        self._batches_bytes = 0
        self._files: list[_SpillFile] = []
        """Complete files, in order; memory holds what came after them."""

    @property
    def has_spilled(self) -> bool:
        """Whether some batches are on disk."""
        return bool(self._files)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        size = batch.nbytes
        self.num_rows += batch.num_rows
        self.num_bytes += size
        self._batches.append(batch)
        self._batches_bytes += size
        if self._batches_bytes > self._memory_bytes_max:
            self._spill()

    def _spill(self) -> None:
        try:
            self._files.append(_SpillFile(self._batches))
        except OSError as error:
            raise AnabranchError(
                f"Rows of a batch do not fit into memory and cannot be kept in "
                f"{tempfile.gettempdir()}: {error.strerror or error}. Free space there, or set "
                "TMPDIR to a folder on a larger disk, and start the query again. Nothing was "
                "changed."
            ) from error
        self._batches, self._batches_bytes = [], 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            yield from file
        yield from self._batches

    def table(self, schema: pa.Schema) -> pa.Table:
        """Everything as one table; batches on disk are mapped, not read."""
        return pa.Table.from_batches(list(self), schema)

    def clear(self) -> None:
        """Forget everything and free the files."""
        self.num_rows = self.num_bytes = self._batches_bytes = 0
        self._batches = []
        self._files = []


class _SpillFile:
    """Batches of one schema in an unnamed file."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        with tempfile.TemporaryFile(prefix="anabranch-") as file:
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(pa.py_buffer(self._map))
