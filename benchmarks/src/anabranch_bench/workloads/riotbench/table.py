"""Table insert and range query: annotated rows in a SQLite file, by message number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.riotbench.datasets import TIMESTAMP, Dataset
from anabranch_bench.workloads.riotbench.senml import split_row

LOCK_SECONDS = 60.0
BATCH_ROWS = 100


@dataclass(frozen=True)
class RowTable:
    """A table file that several tasks may write; a row that is written again replaces itself."""

    path: str

    def insert(self, rows: list[tuple[int, int, str]]) -> None:
        """Rows of (message number, time, CSV), a hundred in each statement's batch."""
        with self._open() as connection:
            for at in range(0, len(rows), BATCH_ROWS):
                connection.executemany(
                    "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", rows[at : at + BATCH_ROWS]
                )

    def between(self, start_ms: int, end_ms: int) -> list[str]:
        """CSV rows with start <= time < end, in the order of their messages."""
        with self._open() as connection:
            found = connection.execute(
                "SELECT row FROM rows WHERE at_ms >= ? AND at_ms < ? ORDER BY id",
                (start_ms, end_ms),
            )
            return [row for (row,) in found]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=LOCK_SECONDS)) as connection:
            with connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, at_ms INT, row TEXT)"
                )
                connection.execute("CREATE INDEX IF NOT EXISTS by_time ON rows (at_ms)")
            with connection:
                yield connection


@dataclass(frozen=True)
class InsertRows:
    """A task that stores CSV rows and hands them on."""

    table: RowTable
    dataset: Dataset

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows."""
        row = rows.column("row").combine_chunks()
        times = pc.cast(split_row(row, tuple(self.dataset.columns))[TIMESTAMP], pa.int64())
        columns = (rows.column("id").to_pylist(), times.to_pylist(), row.to_pylist())
        self.table.insert(list(zip(*columns, strict=True)))
        return rows
