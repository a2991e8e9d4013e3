"""The backend "rocksdb": working sets in memory over one database for the worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.state.backend import MemoryBackend
from anabranch.state.columnar.grouping import Places
from anabranch.state.columnar.layout import Layout as ColumnarLayout
from anabranch.state.columnar.table import GroupTable
from anabranch.state.rocksdb import rows, tables
from anabranch.state.rocksdb.database import Database, Namespace
from anabranch.state.rocksdb.records import RecordCodec
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import Layout as RowLayout


class RocksBackend(MemoryBackend):
    """State on a local disk; in memory only what transactions use."""

    def __init__(
        self,
        memory_bytes: int,
        local_dir: str | None = None,
        working_bytes_max: int | None = None,
    ) -> None:
        """`working_bytes_max`: of the memory, what working sets may take; by default half."""
        self.database = Database(local_dir, memory_bytes, working_bytes_max)

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
        self.database.close()
