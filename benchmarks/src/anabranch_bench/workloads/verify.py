"""Compares what a streaming query said with what it should have said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from anabranch_bench.workloads.contract import Output, Workload
from anabranch_bench.workloads.source import OUTPUT

EXAMPLES = 3
"""Differences that a verdict shows."""

_COUNT, _ROW = "__count", "__row"


class Collected:
    """A sink that keeps the rows of every output, by batch; writing a batch again changes nothing.

    Its `write` is for foreachBatch on what `one_query` made.
    """

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = list(outputs)
        self._batches: dict[int, dict[str, pa.Table]] = {}

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Keep a batch."""
        rows = batch.toArrow()
        if len(self._outputs) == 1:
            self._batches[batch_id] = {self._outputs[0]: rows}
            return
        found = {}
        for name in self._outputs:
            mine = rows.filter(pc.equal(rows.column(OUTPUT), name))
            structs = mine.column(name).combine_chunks()
            found[name] = pa.Table.from_arrays(structs.flatten(), schema=_fields(structs.type))
        self._batches[batch_id] = found

    @property
    def rows(self) -> int:
        """Rows of all outputs."""
        return sum(t.num_rows for tables in self._batches.values() for t in tables.values())

    def batches(self, output: str) -> list[pa.Table]:
        """Rows of an output, batch by batch."""
        return [self._batches[number][output] for number in sorted(self._batches)]


def _fields(kind: Any) -> pa.Schema:
    return pa.schema([kind.field(i) for i in range(kind.num_fields)])


def fold(batches: Sequence[pa.Table], output: Output) -> pa.Table:
    """All rows, or the last row of each key."""
    tables = [table for table in batches if table.num_rows]
    if not tables:
        return batches[0] if batches else pa.table({})
    whole = pa.concat_tables(tables)
    if not output.keys:
        return whole
    keys = list(output.keys)
    rows = whole.select(keys).append_column(_ROW, pa.array(np.arange(whole.num_rows)))
    last = rows.group_by(keys).aggregate([(_ROW, "max")])
    return whole.take(last.column(f"{_ROW}_max"))


def repeated(batches: Sequence[pa.Table], output: Output) -> tuple[int, list[str]]:
    """Rows of a batch beyond the first of their key, and some of these keys.

    An output with keys must not have any: which of the rows counts would be luck.
    """
    count = 0
    examples: list[str] = []
    for table in batches if output.keys else ():
        found = table.group_by(list(output.keys)).aggregate([([], "count_all")])
        twice = found.filter(pc.field("count_all") > 1)
        count += sum(twice.column("count_all").to_pylist()) - twice.num_rows
        examples += [
            f"{row.pop('count_all')} rows in one batch for {row}"
            for row in twice.slice(0, EXAMPLES - len(examples)).to_pylist()
        ]
    return count, examples


@dataclass(frozen=True)
class Verification:
    """Whether an output is right."""

    output: str
    expected_rows: int
    found_rows: int
    differences: tuple[str, ...] = ()
    """Some of the rows that differ, in words."""
    wrong_rows: int = 0

    @property
    def is_right(self) -> bool:
        """No row is missing, too many or different."""
        return not self.wrong_rows

    def __str__(self) -> str:
        if self.is_right:
            return f"{self.output}: all {self.expected_rows:,} rows are right"
        told = "; ".join(self.differences)
        return (
            f"{self.output}: WRONG, {self.wrong_rows:,} rows differ (expected "
            f"{self.expected_rows:,}, found {self.found_rows:,}): {told}"
        )

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "output": self.output,
            "right": self.is_right,
            "expected_rows": self.expected_rows,
            "found_rows": self.found_rows,
            "wrong_rows": self.wrong_rows,
            "differences": list(self.differences),
        }


def verify(workload: Workload, rows: int, collected: Collected) -> list[Verification]:
    """Verdicts on all outputs after the first `rows` rows of the stream."""
    events = pa.Table.from_batches([workload.events.between(0, rows)])
    return verify_tables(workload, workload.expected(events), collected)


def verify_tables(
    workload: Workload, expected: Mapping[str, pa.Table], collected: Collected
) -> list[Verification]:
    """Verdicts on all outputs, against tables."""
    return [
        compare_batches(name, expected[name], collected.batches(name), output)
        for name, output in workload.outputs.items()
    ]


def compare_batches(
    name: str, expected: pa.Table, batches: Sequence[pa.Table], output: Output
) -> Verification:
    """What the batches come to; a key that one of them has twice is wrong whatever it says."""
    verdict = compare(name, expected, fold(batches, output), output)
    count, examples = repeated(batches, output)
    told = (*examples, *verdict.differences)[:EXAMPLES]
    return replace(verdict, wrong_rows=verdict.wrong_rows + count, differences=told)


def compare(name: str, expected: pa.Table, found: pa.Table, output: Output) -> Verification:
    """Rows as multisets; with a tolerance, floating-point numbers may differ a little."""
    if not found.num_rows:
        found = expected.schema.empty_table()
    found = found.select(expected.column_names).cast(expected.schema)
    differ = _close if output.tolerance else _exact
    wrong, examples = differ(expected, found, output.tolerance)
    return Verification(name, expected.num_rows, found.num_rows, tuple(examples), wrong)


def _exact(expected: pa.Table, found: pa.Table, _: float) -> tuple[int, list[str]]:
    """Number of rows that only one side has (counting repeats), and some of them."""
    signed = [
        table.append_column(_COUNT, pa.array(np.full(table.num_rows, sign)))
        for table, sign in ((expected, -1), (found, 1))
    ]
    counts = (
        pa.concat_tables(signed)
        .group_by(expected.column_names)
        .aggregate([(_COUNT, "sum")])
        .filter(pc.field(f"{_COUNT}_sum") != 0)
    )
    surplus = counts.column(f"{_COUNT}_sum").to_pylist()
    rows = counts.drop_columns([f"{_COUNT}_sum"]).slice(0, EXAMPLES).to_pylist()
    examples = [
        f"{abs(n)} {'missing' if n < 0 else 'too many'} of {row}"
        for n, row in zip(surplus, rows, strict=False)
    ]
    return sum(abs(n) for n in surplus), examples


def _close(expected: pa.Table, found: pa.Table, tolerance: float) -> tuple[int, list[str]]:
    """Rows in the same order by what must be equal, then number by number."""
    numbers = [f.name for f in expected.schema if pa.types.is_floating(f.type)]
    rest = [f.name for f in expected.schema if f.name not in numbers]
    wrong, examples = _exact(expected.select(rest), found.select(rest), 0.0) if rest else (0, [])
    if wrong or expected.num_rows != found.num_rows:
        return max(wrong, 1), examples or ["another number of rows"]
    order = [(name, "ascending") for name in (*rest, *numbers)]
    expected, found = expected.sort_by(order), found.sort_by(order)
    right = np.ones(expected.num_rows, bool)
    for name in numbers:
        got, wanted = (t.column(name).to_numpy() for t in (found, expected))
        right &= np.isclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    at = np.flatnonzero(~right)
    shown = zip(*(t.take(at[:EXAMPLES]).to_pylist() for t in (expected, found)), strict=True)
    return len(at), [f"expected {wanted}, found {got}" for wanted, got in shown]
