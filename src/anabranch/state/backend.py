"""Where keyed state is between transactions: here all of it in memory, the default."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TypeAlias

from anabranch.errors import InvalidArgument, needs_extra
from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.state.columnar.grouping import Places
from anabranch.state.columnar.layout import ColumnarLayout
from anabranch.state.columnar.table import GroupTable
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import RowLayout

BACKENDS = ("memory", "rocksdb")
"""Names that `StateService(backend=...)` takes."""

MEMORY_BYTES_MIN = 32 << 20


def check_backend(backend: object, memory_bytes: object, local_dir: object) -> None:
    """Refuse what a worker could not start with."""
    if backend not in BACKENDS:
        raise InvalidArgument(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    is_enough = isinstance(memory_bytes, int) and memory_bytes >= MEMORY_BYTES_MIN
    if memory_bytes is not None and not is_enough:
        limit = f"{MEMORY_BYTES_MIN >> 20} MiB"
        raise InvalidArgument(f"state_memory_bytes must be at least {limit}, got {memory_bytes!r}.")
    if local_dir is not None and (not isinstance(local_dir, str) or not local_dir):
        raise InvalidArgument(f"local_dir must be a folder, got {local_dir!r}.")
    if local_dir is not None and backend != "rocksdb":
        raise InvalidArgument(
            f'local_dir cannot be obeyed: backend="{backend}" keeps state in memory. Leave it out, '
            'or use backend="rocksdb".'
        )
    if backend == "rocksdb" and find_spec("rocksdict") is None:
        raise needs_extra('backend="rocksdb" needs the package rocksdict', "rocksdb")


class MemoryBackend:
    """Makes the state of key groups; one backend for all operators of a worker.

    Engines say which keys they are about to read. Other backends bring them into memory then, so
    that engines always work on tables and records in memory.
    """

    def new_table(self, layout: ColumnarLayout, keyspace: KeySpace) -> GroupTable:
        """Empty state of a key group of a columnar operator."""
        return GroupTable(layout, keyspace)

    def new_rows(self, layout: RowLayout) -> RowGroupState:
        """Empty state of a key group of a row operator."""
        return RowGroupState(layout)

    def bring_tables(self, tables: Sequence[GroupTable], bounds: Places, hashes: Int64s) -> None:
        """`hashes[bounds[i]:bounds[i + 1]]`, sorted, are about to be looked up in `tables[i]`."""

    def bring_rows(
        self, states: Sequence[RowGroupState], sizes: Sequence[int], hashes: Sequence[int]
    ) -> None:
        """The first `sizes[0]` hashes are about to be looked up in `states[0]`, and so on."""

    def close(self) -> None:
        """End of the worker."""


Backend: TypeAlias = MemoryBackend
MEMORY = MemoryBackend()
