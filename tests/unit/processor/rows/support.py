"""An in-memory transaction and service for row operators: what a worker does, without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle as _cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType
from tests.unit.state.backends import in_use

from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.model.spark_task import NO_TASK
from anabranch.processor.contract import BatchTimes, OperatorStats, RowChunk
from anabranch.processor.rows.definition import RowInput, RowOperatorDefinition
from anabranch.processor.rows.handle import RecordingHandle
from anabranch.processor.tally import Tally
from anabranch.processor.user_code import running
from anabranch.state.arrow_types import arrow_type
from anabranch.state.contract import GroupState, Sections

cloudpickle: Any = _cloudpickle
__all__ = ["Service", "define", "hash_keys"]


def parse(ddl: str) -> StructType:
    """DDL without a JVM: enough for `name type` lists of simple types."""
    from pyspark.sql import types as T

    simple = {
        "long": T.LongType(), "bigint": T.LongType(), "int": T.IntegerType(),
        "string": T.StringType(), "double": T.DoubleType(), "float": T.FloatType(),
        "boolean": T.BooleanType(), "timestamp": T.TimestampType(), "date": T.DateType(),
        "binary": T.BinaryType(), "timestamp_ntz": T.TimestampNTZType(),
    }  # fmt: skip
    parts = [part.split() for part in ddl.split(",")]
    return StructType([T.StructField(name, simple[kind.lower()]) for name, kind in parts])


def hash_keys(keys: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Some 64-bit hash; Spark's own is not needed here."""
    import zlib

    codes = [
        zlib.crc32(repr(key).encode()) | zlib.crc32(repr(key).encode()[::-1]) << 31 for key in keys
    ]
    return np.array(codes, np.int64)


def define(
    processor: StatefulProcessor,
    input_schema: StructType | str,
    keys: Sequence[str],
    output: StructType | str,
    time_mode: str = "none",
    event_time: str | None = None,
    initial_schema: StructType | str | None = None,
    use_pandas: bool = False,
) -> RowOperatorDefinition:
    """What the planner makes, without Spark."""
    schema = parse(input_schema) if isinstance(input_schema, str) else input_schema
    first = parse(initial_schema) if isinstance(initial_schema, str) else initial_schema
    handle = RecordingHandle(time_mode, parse)
    cloudpickle.loads(cloudpickle.dumps(processor)).init(handle)
    names = list(schema.names)
    return RowOperatorDefinition(
        processor=cloudpickle.dumps(processor),
        processor_name=type(processor).__name__,
        key_schema=StructType([schema[key] for key in keys]),
        rows=RowInput(
            tuple(names),
            tuple(names.index(key) for key in keys),
            None if event_time is None else names.index(event_time),
        ),
        initial=None
        if first is None
        else RowInput(tuple(first.names), tuple(first.names.index(key) for key in keys)),
        output=parse(output) if isinstance(output, str) else output,
        time_mode=time_mode,
        variables=tuple(handle.specs.values()),
        deleted=frozenset(handle.deleted),
        use_pandas=use_pandas,
    )


class MemoryTransaction:
    """A `Transaction` with everything in lists."""

    def __init__(
        self, epoch: int, groups: Sequence[int], times: BatchTimes,
        rows: list[RowChunk], initial: list[RowChunk],
    ) -> None:  # fmt: skip
        self.epoch = epoch
        self.groups = tuple(groups)
        self.times = times
        self._rows = rows
        self._initial = initial
        self.outputs: list[Any] = []
        self.changes: dict[str, list[Any]] = {}
        self.task = NO_TASK
        self.tally = Tally()

    def chunks(self) -> Iterator[RowChunk]:
        return iter(self._rows)

    def initial(self) -> Iterator[RowChunk]:
        return iter(self._initial)

    def emit(self, rows: Any) -> None:
        self.outputs.append(rows)

    def log(self, section: str, entries: Any) -> None:
        self.changes.setdefault(section, []).append(entries)


class Service:
    """One worker that owns all key groups."""

    def __init__(self, definition: RowOperatorDefinition, groups: int = 8, bins: int = 4) -> None:
        self.definition = definition
        self.keyspace = KeySpace(groups, bins)
        self.engine = definition.open(self.keyspace, in_use())
        self.states: dict[int, GroupState] = {
            group: self.engine.create_group() for group in range(groups)
        }
        self.epoch = -1
        self.stats = OperatorStats()
        self.changes: list[dict[str, Any]] = []
        self.hash = hash_keys
        self.task = NO_TASK

    def batch(
        self,
        rows: Any = (),
        *,
        schema: StructType | None = None,
        now_ms: int = 0,
        watermark_ms: int = 0,
        late_watermark_ms: int | None = None,
        initial: Any = (),
    ) -> list[dict[str, Any]]:
        """Run one epoch; outputs as dicts. `rows` is a list of tuples, dicts or an Arrow table."""
        self.epoch += 1
        late_ms = watermark_ms if late_watermark_ms is None else late_watermark_ms
        tx = MemoryTransaction(
            self.epoch,
            tuple(self.states),
            BatchTimes(now_ms, watermark_ms, late_ms),
            self._chunks(rows, self.definition.rows),
            self._chunks(initial, self.definition.initial) if self.definition.initial else [],
        )
        for state in self.states.values():
            state.begin()
        tx.task = self.task
        self.transaction = tx
        try:
            with running(tx):
                self.stats = self.engine.apply(tx, self.states)
        except Exception:
            for state in self.states.values():
                state.undo()
            raise
        self.changes.append({name: pa.concat_tables(parts) for name, parts in tx.changes.items()})
        return [row for table in tx.outputs for row in table.drop_columns([GROUP]).to_pylist()]

    def _chunks(self, rows: Any, source: RowInput) -> list[RowChunk]:
        if not len(rows):
            return []
        table = rows if isinstance(rows, pa.Table) else self._table(rows, source)
        keys = list(zip(*(table.column(at).to_pylist() for at in source.key_at), strict=True))
        hashes = self.hash(keys) if source.key_at else np.zeros(table.num_rows, np.int64)
        table = table.add_column(0, HASH, pa.array(hashes))
        return [RowChunk(tuple(self.states), table)]

    def _table(self, rows: Any, source: RowInput) -> Any:
        columns = list(zip(*rows, strict=True))
        types = self.types if source is self.definition.rows else self.initial_types
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)],
            names=list(source.names),
        )

    types: Sequence[Any] = ()
    initial_types: Sequence[Any] = ()

    def with_types(
        self, schema: StructType | str, initial: StructType | str | None = None
    ) -> Service:
        """Arrow types of rows given as tuples."""
        self.types = _arrow_types(schema)
        self.initial_types = _arrow_types(initial) if initial is not None else ()
        return self

    def snapshot(self) -> dict[int, Sections]:
        """Exported state of every key group."""
        return {group: state.export() for group, state in self.states.items()}

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        """All state entries, sorted, for comparisons."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for sections in self.snapshot().values():
            for name, table in sections.items():
                rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
                found.setdefault(name, []).extend(rows)
        return {name: sorted(rows, key=repr) for name, rows in found.items()}


def _arrow_types(schema: StructType | str) -> list[Any]:
    struct = parse(schema) if isinstance(schema, str) else schema
    return [arrow_type(field.dataType) for field in struct.fields]
