"""An in-memory worker for columnar operators: transactions, changelog, outputs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from tests.unit.state.backends import in_use

from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.model.spark_task import NO_TASK, SparkTask
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.engine import ColumnarEngine
from anabranch.processor.contract import BatchTimes, OperatorStats, RowChunk
from anabranch.processor.tally import Tally
from anabranch.state.columnar.table import GroupTable
from anabranch.state.contract import Sections


@dataclass
class MemoryTransaction:
    """Rows of one epoch over all key groups; collects what the engine emits and logs."""

    epoch: int
    groups: tuple[int, ...]
    times: BatchTimes
    given: list[RowChunk]
    outputs: list[Any] = field(default_factory=list)
    logged: list[tuple[str, Any]] = field(default_factory=list)
    task: SparkTask = NO_TASK
    tally: Tally = field(default_factory=Tally)

    def chunks(self) -> Iterator[RowChunk]:
        return iter(self.given)

    def initial(self) -> Iterator[RowChunk]:
        return iter(())

    def emit(self, rows: Any) -> None:
        assert rows.column_names[0] == GROUP
        self.outputs.append(rows)

    def log(self, section: str, entries: Any) -> None:
        self.logged.append((section, entries))


class MemoryWorker:
    """One worker with all key groups of an operator."""

    def __init__(self, definition: ColumnarDefinition, keyspace: KeySpace | None = None) -> None:
        self.keyspace = keyspace or KeySpace(groups=8, bins=4)
        self.definition: ColumnarDefinition = pickle.loads(pickle.dumps(definition))
        self.engine: ColumnarEngine = self.definition.open(self.keyspace, in_use())
        self.groups = tuple(range(self.keyspace.groups))
        self.tables: dict[int, GroupTable] = {g: self.engine.create_group() for g in self.groups}
        self.stats = OperatorStats()
        self.epoch = -1
        self.logs: list[dict[int, Sections]] = []

    def chunk(self, rows: Any) -> list[RowChunk]:
        """Rows as two chunks with disjoint key groups."""
        groups = self.keyspace.group_of(rows.column(HASH).to_numpy())
        found = []
        for half in (0, 1):
            mask = groups % 2 == half
            some = tuple(int(g) for g in np.unique(groups[mask]))
            if some:
                found.append(RowChunk(some, rows.filter(pa.array(mask))))
        return found

    def run(self, rows: Any, watermark_ms: int = 0, late_ms: int = 0) -> Any:
        """One epoch; the output rows."""
        self.epoch += 1
        tx = MemoryTransaction(
            self.epoch, self.groups, BatchTimes(0, watermark_ms, late_ms), self.chunk(rows)
        )
        for table in self.tables.values():
            table.begin()
        self.stats = self.engine.apply(tx, self.tables)
        self.logs.append(self.split_log(tx))
        names = self.definition.output_schema.names
        schema = pa.schema([pa.field(GROUP, pa.int32()), *self.definition.output_schema])
        if not tx.outputs:
            return schema.empty_table().select(names)
        return pa.concat_tables(tx.outputs).select(names)

    def split_log(self, tx: MemoryTransaction) -> dict[int, Sections]:
        """The changelog of each key group."""
        found: dict[int, Sections] = {}
        for section in {name for name, _ in tx.logged}:
            parts = [entries for name, entries in tx.logged if name == section]
            log = pa.concat_tables(parts, promote_options="default")
            groups = self.keyspace.group_of(log.column(HASH).to_numpy())
            for group in np.unique(groups):
                part = log.filter(pa.array(groups == group))
                found.setdefault(int(group), {})[section] = part
        return found

    def dump(self) -> list[str]:
        """All entries, comparable."""
        rows = []
        for table in self.tables.values():
            for section in table.export().values():
                rows += [repr(tuple(row.values())) for row in section.to_pylist()]
        return sorted(rows)
