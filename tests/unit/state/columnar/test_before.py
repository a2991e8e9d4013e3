"""Lookups behind a transaction: what was there before it, whatever it did."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.processor.columnar.support import MemoryWorker
from tests.unit.processor.columnar.test_engine import session_rows, sessions, window_rows, windowed

from anabranch.model.keyspace import HASH
from anabranch.state.columnar.layout import SECTION


def keys_of(worker: MemoryWorker, rows: Any) -> Any:
    names = [HASH, *worker.definition.key_schema.names]
    return rows.select(names).group_by(names).aggregate([])


def looked_up(worker: MemoryWorker, keys: Any, before: bool) -> list[str]:
    groups = set(worker.keyspace.group_of(keys.column(HASH).to_numpy()).tolist())
    views = {group: (worker.tables[group], before) for group in groups}
    (shown,) = worker.engine.look_up(views, keys, SECTION)
    return sorted(map(repr, shown.to_pylist()))


@pytest.mark.parametrize("kind", ["windows", "sessions"])
def test_before_and_after_every_transaction(kind: str) -> None:
    make, make_rows = {
        "windows": (windowed, window_rows),
        "sessions": (sessions, session_rows),
    }[kind]
    chance = random.Random(3)
    worker: MemoryWorker = make(append=True)
    all_rows = make_rows([(sensor, at, 0) for sensor in range(30) for at in range(12)])
    keys = keys_of(worker, all_rows)
    sizes = set()
    for batch in range(10):
        rows = make_rows(
            [
                (chance.randrange(30), batch + chance.randrange(3), chance.randrange(99))
                for _ in range(chance.choice((0, 5, 60)))
            ]
            or [(0, batch, 1)]
        )
        state, before = worker.dump(), looked_up(worker, keys, before=False)
        worker.run(rows, watermark_ms=1000 * (batch - 2), late_ms=1000 * (batch - 3))
        assert looked_up(worker, keys, before=True) == before
        after = worker.dump()
        sizes.add(len(after))
        shown = looked_up(worker, keys, before=False)
        for table in worker.tables.values():
            table.undo()
        assert worker.dump() == state
        assert looked_up(worker, keys, before=False) == before
        worker.run(rows, watermark_ms=1000 * (batch - 2), late_ms=1000 * (batch - 3))
        assert worker.dump() == after
        assert looked_up(worker, keys, before=False) == shown
    assert len(sizes) > 2, "entries must come and go"
