"""The first row of each key, and when keys are forgotten."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.model.keyspace import HASH
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.first_rows import FirstRows

MOMENT = pa.timestamp("us", "UTC")
INPUT = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64()), pa.field("t", MOMENT)])
OUTPUT = pa.schema([pa.field("v", pa.int64())])


def worker(keys: list[str], **how: Any) -> MemoryWorker:
    processor = FirstRows(["v"], OUTPUT, ["#0 bigint"], **how)
    key_schema = pa.schema([INPUT.field(name) for name in keys])
    return MemoryWorker(ColumnarDefinition(processor, key_schema, INPUT, OUTPUT, late="t"))


def rows(*given: tuple[int, int, int | None]) -> pa.Table:
    """Key, value, and event time in seconds."""
    keys, values = [row[0] for row in given], [row[1] for row in given]
    moments = [None if second is None else second * 1_000_000 for _, _, second in given]
    columns = [pa.array(keys), pa.array(values), pa.array(moments, pa.int64()).cast(MOMENT)]
    table = pa.Table.from_arrays(columns, schema=INPUT)
    return table.add_column(0, HASH, pa.array([key * 7919 for key in keys], pa.int64()))


def shown(result: pa.Table) -> list[int]:
    return sorted(result.column("v").to_pylist())


def test_the_first_of_a_batch_and_never_again() -> None:
    own = worker(["k"])
    assert shown(own.run(rows((1, 10, 1), (2, 20, 1), (1, 11, 2)))) == [10, 20]
    assert shown(own.run(rows((1, 12, 3), (3, 30, 3)))) == [30]
    assert shown(own.run(rows((1, 13, 99)), watermark_ms=90_000)) == []


def test_late_rows_are_dropped_and_those_without_time_are_not() -> None:
    own = worker(["k"])
    assert shown(own.run(rows((1, 10, 5), (2, 20, 6), (3, 30, None)), late_ms=5_000)) == [20, 30]
    assert own.stats.rows_dropped_late == 1


def test_a_key_with_event_time_is_forgotten_at_the_watermark() -> None:
    own = worker(["k", "t"], expiry="t")
    own.run(rows((1, 10, 5), (2, 20, 8), (3, 30, None)))
    own.run(rows(), watermark_ms=6_000)
    assert own.stats.rows_removed == 1
    assert len(own.dump()) == 2


def test_within_a_delay_of_the_first_row() -> None:
    own = worker(["k"], within=("t", 10_000_000))
    assert shown(own.run(rows((1, 10, 5)), watermark_ms=1_000)) == [10]
    assert shown(own.run(rows((1, 11, 16)), watermark_ms=14_999, late_ms=1_000)) == []
    assert own.dump()
    own.run(rows(), watermark_ms=15_000, late_ms=14_999)
    assert not own.dump()
    assert shown(own.run(rows((1, 12, 16)), watermark_ms=15_000, late_ms=15_000)) == [12]
