"""Mistakes of a user's columnar processor are told in the processor's terms, in a few lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.columnar.support import MemoryWorker
from tests.unit.processor.columnar.test_engine import KEY, MOMENT, hashes_of

from anabranch.errors import ProcessorError
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.columnar.definition import ColumnarDefinition

STATE = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("until", MOMENT),
    ]
)
OUTPUT = pa.schema([*KEY, pa.field("n", pa.int64())])
SUMS = pa.schema([pa.field("n", pa.int64())])


def state(**changed: Any) -> Any:
    """Good state of two keys, with some columns replaced, or left out if None."""
    good = {"n": [1, 2], "size": [1, 2], "until": pa.array([0, 0]).cast(MOMENT)}
    return pa.table({name: v for name, v in {**good, **changed}.items() if v is not None})


def output(**changed: Any) -> Any:
    good = {"sensor": [1, 2], "n": [1, 2]}
    return pa.table({name: v for name, v in {**good, **changed}.items() if v is not None})


Mistake = tuple[Callable[[], Any], str]

UPDATES: dict[str, Mistake] = {
    "nothing": (lambda: None, r"returned None, not an Update.*Update\(\) changes nothing"),
    "a table": (state, r"returned a Table, not an Update"),
    "state that is no table": (
        lambda: Update(state={"n": [1, 2]}),
        r"returned a dict as state\. Return a pyarrow\.Table",
    ),
    "state without a column": (
        lambda: Update(state=state(n=None)),
        r"state with no column 'n' \(columns: size, until\)\. Return the columns n, size, until",
    ),
    "state with a column twice": (
        lambda: Update(state=state().append_column("n", pa.array([0, 0]))),
        r"state with more than one column 'n'",
    ),
    "state of another type": (
        lambda: Update(state=state(n=["one", "two"])),
        r"state whose column 'n' is string, which does not fit the declared int64",
    ),
    "state that cannot be cast": (
        lambda: Update(state=state(n=[[1], [2]])),
        r"state whose column 'n' is list<.*>, which does not fit the declared int64",
    ),
    "state beyond its type": (
        lambda: Update(state=state(size=[1, 2**40])),
        r"state whose column 'size' is int64, which does not fit the declared int32",
    ),
    "state for fewer keys": (
        lambda: Update(state=state().slice(0, 1)),
        r"state with 1 rows for 2 keys\. Return one row for every key",
    ),
    "state with nulls": (
        lambda: Update(state=state(size=[1, None])),
        r"nulls in the column 'size', which is declared not nullable",
    ),
    "a short write mask": (
        lambda: Update(state=state(), write=np.ones(1, bool)),
        r"returned bool values of the shape \(1,\) as write.*each of the 2 keys",
    ),
    "key numbers as drop mask": (
        lambda: Update(drop=np.array([0, 1])),
        r"returned int64 values of the shape \(2,\) as drop.*one boolean",
    ),
    "output that is no table": (
        lambda: Update(output=[{"sensor": 1, "n": 1}]),
        r"returned a list as output\. Return a pyarrow\.Table",
    ),
    "output without a column": (
        lambda: Update(output=output(n=None)),
        r"output with no column 'n' \(columns: sensor\)\. Return the columns sensor, n",
    ),
    "empty output without columns": (
        lambda: Update(output=pa.table({})),
        r"output with no column 'sensor' \(columns: none\)",
    ),
    "output of another type": (
        lambda: Update(output=output(n=["one", "two"])),
        r"output whose column 'n' is string, which does not fit the declared int64",
    ),
    "output without keys": (
        lambda: Update(output=output().slice(0, 1)),
        r"returned 1 output rows for 2 keys.*Return the key number of each row",
    ),
    "too few output keys": (
        lambda: Update(output=output(), output_keys=np.array([0])),
        r"int64 values of the shape \(1,\) as the key numbers of 2 output rows",
    ),
    "a mask as output keys": (
        lambda: Update(output=output(), output_keys=np.array([True, False])),
        r"bool values of the shape \(2,\) as the key numbers of 2 output rows",
    ),
    "output keys beyond the keys": (
        lambda: Update(output=output(), output_keys=np.array([0, 2])),
        r"key numbers from 0 to 2 for its output rows\. Return numbers from 0 to 1",
    ),
}

COMBINED: dict[str, Mistake] = {
    "nothing": (lambda: None, r"returned None, not a table and the key numbers"),
    "no column": (lambda: (pa.table({"m": [1]}), None), r"combined rows with no column 'n'"),
    "no keys": (lambda: (pa.table({"n": [1, 2]}), None), r"2 combined rows for 1 keys"),
}


class Careless(ColumnarProcessor):
    """Makes a mistake in one of its methods."""

    state_schema = STATE
    expiry = "until"

    def __init__(self, method: str, mistake: str) -> None:
        self.method, self.mistake = method, mistake
        self.combined_schema = SUMS if method == "combine" else None

    def process(self, batch: KeyedBatch) -> Any:
        return UPDATES[self.mistake][0]() if self.method == "process" else Update(state=state())

    def expire(self, batch: KeyedBatch) -> Any:
        return UPDATES[self.mistake][0]()

    def combine(self, batch: KeyedBatch) -> Any:
        return COMBINED[self.mistake][0]()


def worker_with(processor: ColumnarProcessor) -> MemoryWorker:
    return MemoryWorker(ColumnarDefinition(processor, KEY, KEY, OUTPUT), KeySpace(groups=1, bins=4))


def rows(*sensors: int) -> Any:
    return pa.table({HASH: hashes_of(sensors), "sensor": list(sensors)})


def check_told(message: str, method: str, expected: str) -> None:
    assert f"] Careless.{method} returned" in message
    assert re.search(expected, message), message
    assert message.endswith("The batch was not applied.")
    assert "Traceback" not in message
    assert len(message) < 400


@pytest.mark.parametrize("mistake", UPDATES)
def test_process(mistake: str) -> None:
    worker = worker_with(Careless("process", mistake))
    with pytest.raises(ProcessorError) as caught:
        worker.run(rows(1, 2))
    check_told(str(caught.value), "process", UPDATES[mistake][1])


@pytest.mark.parametrize("mistake", ["nothing", "state without a column", "output without keys"])
def test_expire(mistake: str) -> None:
    worker = worker_with(Careless("expire", mistake))
    with pytest.raises(ProcessorError) as caught:
        worker.run(rows(1, 2), watermark_ms=1)
    check_told(str(caught.value), "expire", UPDATES[mistake][1])


@pytest.mark.parametrize("mistake", COMBINED)
def test_combine(mistake: str) -> None:
    worker = worker_with(Careless("combine", mistake))
    worker.engine._piece_rows_max = 2
    with pytest.raises(ProcessorError) as caught:
        worker.run(rows(1, 1, 1))
    check_told(str(caught.value), "combine", COMBINED[mistake][1])


class Loose(ColumnarProcessor):
    """Right in another form: a record batch, Arrow masks, narrower numbers, nulls not stored."""

    state_schema = STATE

    def process(self, batch: KeyedBatch) -> Update:
        first = pa.array([True, False])
        stored = state(n=pa.array([1, 2], pa.int16()), size=[1, None])
        told = output().slice(0, 1).to_batches()[0]
        return Update(stored, write=first, output=told, output_keys=np.array([1], np.uint8))


def test_other_forms_are_taken() -> None:
    worker = worker_with(Loose())
    assert worker.run(rows(1, 2)).to_pylist() == [{"sensor": 1, "n": 1}]
    assert worker.stats.rows_updated == 1
