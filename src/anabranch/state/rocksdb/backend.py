"""The backend "rocksdb": working sets in memory over one database for the worker."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from typing import cast

from anabranch.errors import LocationError
from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.state.backend import MemoryBackend
from anabranch.state.columnar.grouping import Places
from anabranch.state.columnar.layout import ColumnarLayout
from anabranch.state.columnar.table import GroupTable
from anabranch.state.rocksdb import rows, tables
from anabranch.state.rocksdb.database import Database, Namespace
from anabranch.state.rocksdb.records import RecordCodec
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import RowLayout


class RocksBackend(MemoryBackend):
    """State on a local disk; in memory only what transactions use."""

    def __init__(
        self,
        memory_bytes: int,
        local_dir: str | None = None,
        working_bytes_max: int | None = None,
    ) -> None:
        """`working_bytes_max`: of the memory, what working sets may take; by default half."""
        self._open = functools.partial(Database, local_dir, memory_bytes, working_bytes_max)
        self._lock = threading.Lock()
        self._database: Database | None = None
        # What is wrong is told to the batch that needs it: a worker that does not start can only
        # say that, and the folder may be mended meanwhile.
        with contextlib.suppress(LocationError):
            _ = self.database

    @property
    def database(self) -> Database:
        """Opened if it is not."""
        with self._lock:
            if self._database is None:
                self._database = self._open()
            return self._database

    def new_table(self, layout: ColumnarLayout, keyspace: KeySpace) -> GroupTable:
        space = Namespace(self.database, keyspace)
        return tables.StoredTable(layout, RecordCodec(layout), space)

    def new_rows(self, layout: RowLayout) -> RowGroupState:
        return rows.StoredRows(layout, Namespace(self.database, layout.keyspace))

    def bring_tables(self, given: Sequence[GroupTable], bounds: Places, hashes: Int64s) -> None:
        tables.bring(cast("Sequence[tables.StoredTable]", given), bounds, hashes)

    def bring_rows(
        self, states: Sequence[RowGroupState], sizes: Sequence[int], hashes: Sequence[int]
    ) -> None:
        if states:
            rows.bring(cast("Sequence[rows.StoredRows]", states), sizes, hashes)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            if self._database is not None:
                self._database.close()
