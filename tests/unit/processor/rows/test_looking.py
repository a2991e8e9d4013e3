"""Lookups behind a transaction: what was there before it, whatever it did."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.unit.processor.rows.support import Service
from tests.unit.state.rows.test_sections import BATCHES, clock, service

from anabranch.model.keyspace import HASH

KEYS = range(7)
"""One more than there are."""


def looked_up(worker: Service, before: bool) -> dict[str, list[tuple[Any, ...]]]:
    """The state of all keys, in the form of `Service.content`."""
    hashes = worker.hash([(key,) for key in KEYS])
    keys = pa.table({HASH: hashes, "key.k": pa.array(KEYS, pa.int64())})
    groups = set(worker.keyspace.group_of(hashes).tolist())
    views = {group: (worker.states[group], before) for group in groups}
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name in worker.content():
        rows = found.setdefault(name, [])
        for table in worker.engine.look_up(views, keys, name):
            rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


@pytest.mark.parametrize("ttl_ms", [None, 3])
@settings(max_examples=40)
@given(batches=BATCHES)
def test_before_and_after_every_transaction(ttl_ms: int | None, batches: Any) -> None:
    worker = service(ttl_ms)
    for number, (rows, step) in enumerate(batches):
        before = worker.content()
        worker.batch(rows, now_ms=clock(number, step))
        assert looked_up(worker, before=True) == before
        after = worker.content()
        assert looked_up(worker, before=False) == after
        for state in worker.states.values():
            state.undo()
        assert worker.content() == before  # looking has changed nothing
        worker.batch(rows, now_ms=clock(number, step))
        assert worker.content() == after
