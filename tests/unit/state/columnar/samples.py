"""Columnar state of a small aggregate, and changelogs of it by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.model.keyspace import HASH, OP, KeySpace
from anabranch.processor.columnar.aggregates import AggregateProcessor, Measure
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.kernels import Count
from anabranch.processor.columnar.selection import Nth
from anabranch.state.columnar.layout import ColumnarLayout
from anabranch.state.columnar.table import GroupTable


def make(kind: Any, keys: int = 1) -> MemoryWorker:
    schema = pa.schema([pa.field(f"k{i}", kind) for i in range(keys)])
    inputs = schema.append(pa.field("v", pa.string()))
    output = pa.schema([*schema, pa.field("n", pa.int64()), pa.field("last", pa.string())])
    measures = [
        Measure("n", Count(), None),
        Measure("last", Nth(pa.string(), last=True, ignore_nulls=False), "v"),
    ]
    processor = AggregateProcessor(measures, output, windowed=False, append=False, expiry=None)
    return MemoryWorker(ColumnarDefinition(processor, schema, inputs, output))


def rows_of(codes: Any, kind: Any, values: list[Any], weak: int | None, tag: str) -> Any:
    """Rows whose key is values[code]; the hash depends on the code only (weakly, if asked)."""
    hashes = (codes.astype(np.int64) + 11) * 0x9E3779B97F4A7C1
    if weak is not None:
        hashes = hashes % weak
    texts = [None if i % 7 == 0 else f"{tag}{i}" for i in range(len(codes))]
    keys = pa.array([values[c] for c in codes], kind)
    return pa.table({HASH: hashes, "k0": keys, "v": pa.array(texts, pa.string())})


def simple_table() -> GroupTable:
    layout = ColumnarLayout(pa.schema([("k", pa.string())]), pa.schema([("s", pa.string())]))
    return GroupTable(layout, KeySpace())


def entries(keys: list[str], op: int, state: str = "") -> Any:
    hashes = pa.array([hash(k) // 2 for k in keys], pa.int64())
    ops = pa.array([op] * len(keys), pa.uint8())
    texts = pa.array([state] * len(keys), pa.string())
    return {
        "state": pa.table({HASH: hashes, OP: ops, "k": pa.array(keys, pa.string()), "s": texts})
    }
