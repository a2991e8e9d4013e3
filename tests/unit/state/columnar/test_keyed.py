"""Entries of many keys: only what changes is written and logged, and a changelog brings it back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.state.columnar.samples import entries, make, rows_of, simple_table

from anabranch.durability.changelog import encode_changelog
from anabranch.errors import CorruptState
from anabranch.model.keyspace import DELETE, KEPT, UPSERT
from anabranch.state.columnar.layout import ColumnarLayout


def test_values_that_do_not_change_are_not_written_again() -> None:
    values = list(range(40))
    worker = make(pa.int64())

    def run(texts: list[str | None]) -> dict[int, str | None]:
        rows = rows_of(np.arange(40), pa.int64(), values, None, "")
        output = worker.run(rows.set_column(2, "v", pa.array(texts, pa.string())))
        last: list[str | None] = output.column("last").to_pylist()
        return dict(zip(output.column("k0").to_pylist(), last, strict=True))

    def written() -> int:
        return sum(table.arenas[0].rows for table in worker.tables.values())

    first: list[str | None] = [None, *(f"t{i}" for i in range(1, 40))]
    run(first)
    before = written()
    assert run(first) == dict(enumerate(first))
    assert written() == before
    # Some change, one from and one to null.
    second = ["now", *first[1:20], *(f"u{i}" for i in range(20, 39)), None]
    state = worker.dump()
    assert run(second) == dict(enumerate(second))
    assert written() == before + 20  # of a null there is nothing to write
    for table in worker.tables.values():
        table.undo()
    assert worker.dump() == state


def test_what_has_not_changed_is_not_logged_and_comes_back() -> None:
    rng = np.random.default_rng(3)
    values, texts = list(range(50)), ["", "a" * 1000, "b" * 1000, None]
    worker = make(pa.int64())
    for _ in range(12):
        codes = rng.integers(0, 50, 40)
        rows = rows_of(codes, pa.int64(), values, None, "")
        chosen = pa.array([texts[rng.integers(0, 4) if c % 3 else c % 2] for c in codes])
        worker.run(rows.set_column(2, "v", chosen))
    logs = [
        table for log in worker.logs for sections in log.values() for table in sections.values()
    ]
    assert any(KEPT in log.column_names for log in logs)
    again = make(pa.int64())
    for log in worker.logs:
        for group, sections in log.items():
            again.tables[group].begin()
            again.tables[group].replay(sections)
    assert again.dump() == worker.dump()
    # The same in one go, as several entries of a key in one changelog.
    at_once = make(pa.int64())
    for group, table in at_once.tables.items():
        parts = [log[group]["state"] for log in worker.logs if group in log]
        if parts:
            table.replay({"state": pa.concat_tables(parts, promote_options="default")})
    assert at_once.dump() == worker.dump()


def test_what_is_not_logged_takes_no_room() -> None:
    layout = ColumnarLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.string())]))
    (part,) = layout.state_parts
    hashes, keys, state = np.arange(40), [pa.array(range(40))], [pa.array(["a" * 1000] * 40)]
    for unchanged in (np.ones(40, bool), np.arange(40) != 7):
        log = layout.log_upserts(hashes, keys, state, {part.value: unchanged})
        size = sum(memoryview(buffer).nbytes for buffer in encode_changelog({"state": log}))
        assert log.column(part.name).null_count == unchanged.sum()
        assert size < 10_000, "nulls may have bytes behind them"


def test_a_changelog_that_keeps_what_is_not_there_is_refused() -> None:
    worker = make(pa.int64())
    rows = rows_of(np.arange(1, 8), pa.int64(), list(range(9)), None, "same")
    worker.run(rows)
    worker.run(rows)
    group, sections = next(iter(worker.logs[1].items()))
    with pytest.raises(CorruptState, match="earlier epoch"):
        make(pa.int64()).tables[group].replay(sections)


def test_a_changelog_that_keeps_what_was_deleted_is_refused() -> None:
    table = simple_table()
    kept = entries(["a"], UPSERT)["state"].append_column(KEPT, pa.array([1], pa.uint64()))
    log = [entries(["a"], UPSERT, "1")["state"], entries(["a"], DELETE)["state"], kept]
    with pytest.raises(CorruptState, match="earlier epoch"):
        table.replay({"state": pa.concat_tables(log, promote_options="default")})


def test_last_entry_of_a_changelog_counts() -> None:
    table = simple_table()
    log = [entries(["a", "b"], UPSERT, "1"), entries(["a"], DELETE), entries(["b"], UPSERT, "2")]
    table.replay({"state": pa.concat_tables([part["state"] for part in log])})
    assert table.export()["state"].select(["k", "s"]).to_pylist() == [{"k": "b", "s": "2"}]
