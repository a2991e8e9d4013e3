"""The engine with a user's processor: state, expiry, late rows, large batches, mistakes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.errors import ProcessorError
from anabranch.model.keyspace import HASH
from anabranch.processor.columnar.aggregates import (
    WINDOW_END,
    WINDOW_START,
    AggregateProcessor,
    Measure,
)
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.kernels import Count, Sum
from anabranch.processor.columnar.selection import Nth
from anabranch.processor.columnar.sessions import SESSION_END, SESSION_START, SessionProcessor
from anabranch.state.columnar import arena

MOMENT = pa.timestamp("us", "UTC")
KEY = pa.schema([pa.field("sensor", pa.int64(), nullable=False)])


class Highest(ColumnarProcessor):
    """The example of the interface's documentation."""

    state_schema = pa.schema([pa.field("highest", pa.float64())])

    def process(self, batch: KeyedBatch) -> Update:
        seen = batch.reduce(np.maximum, "reading")
        before = batch.state.column("highest").to_numpy()
        rises = ~(seen <= before)
        output = batch.keys.append_column("highest", pa.array(seen)).filter(pa.array(rises))
        highest = np.where(rises, seen, before)
        return Update(
            state=pa.table({"highest": highest}),
            write=rises,
            output=output,
            output_keys=np.flatnonzero(rises),
        )


def hashes_of(keys: Any) -> Any:
    return np.asarray(keys, np.int64) * 0x9E3779B97F4A7C1


def test_the_documented_example() -> None:
    inputs = KEY.append(pa.field("reading", pa.float64()))
    output = KEY.append(pa.field("highest", pa.float64()))
    worker = MemoryWorker(ColumnarDefinition(Highest(), KEY, inputs, output))

    def rows(*pairs: tuple[int, float]) -> Any:
        keys = [k for k, _ in pairs]
        return pa.table(
            {HASH: hashes_of(keys), "sensor": keys, "reading": [float(v) for _, v in pairs]}
        )

    first = worker.run(rows((1, 5), (2, 1), (1, 7)))
    assert sorted(map(tuple, (r.values() for r in first.to_pylist()))) == [(1, 7.0), (2, 1.0)]
    second = worker.run(rows((1, 6), (2, 3), (3, -1)))
    assert sorted(map(tuple, (r.values() for r in second.to_pylist()))) == [(2, 3.0), (3, -1.0)]
    assert worker.stats.rows_updated == 2
    logged = sum(s["state"].num_rows for s in worker.logs[-1].values())
    assert logged == 2


class Failing(ColumnarProcessor):
    """Raises."""

    state_schema = pa.schema([pa.field("x", pa.int64())])

    def process(self, batch: KeyedBatch) -> Update:
        raise ZeroDivisionError("my mistake")


def test_user_errors_carry_the_traceback() -> None:
    worker = MemoryWorker(ColumnarDefinition(Failing(), KEY, KEY, KEY))
    with pytest.raises(ProcessorError, match=r"my mistake[\s\S]*Traceback"):
        worker.run(pa.table({HASH: hashes_of([1]), "sensor": [1]}))


def windowed(append: bool) -> MemoryWorker:
    keys = KEY.append(pa.field(WINDOW_START, MOMENT)).append(pa.field(WINDOW_END, MOMENT))
    inputs = keys.append(pa.field("v", pa.int64()))
    window = pa.struct([("start", MOMENT), ("end", MOMENT)])
    output = pa.schema([*KEY, ("window", window), ("n", pa.int64()), ("s", pa.int64())])
    measures = [Measure("n", Count(), None), Measure("s", Sum(pa.int64(), True), "v")]
    processor = AggregateProcessor(
        measures, output, windowed=True, append=append, expiry=WINDOW_END
    )
    return MemoryWorker(ColumnarDefinition(processor, keys, inputs, output, late=WINDOW_END))


def window_rows(rows: list[tuple[int, int, int]]) -> Any:
    """Rows (sensor, window number, value); window n is [n, n + 1) seconds."""
    sensors = np.array([r[0] for r in rows], np.int64)
    starts = np.array([r[1] for r in rows], np.int64) * 1_000_000
    return pa.table(
        {
            HASH: hashes_of(sensors * 1000 + starts),
            "sensor": sensors,
            WINDOW_START: pa.array(starts).cast(MOMENT),
            WINDOW_END: pa.array(starts + 1_000_000).cast(MOMENT),
            "v": [r[2] for r in rows],
        }
    )


def plain(output: Any) -> list[tuple[int, ...]]:
    """Rows (sensor, window number, n, s)."""
    return sorted(
        (r["sensor"], int(r["window"]["start"].timestamp()), r["n"], r["s"])
        for r in output.to_pylist()
    )


def test_append_closes_windows() -> None:
    worker = windowed(append=True)
    assert plain(worker.run(window_rows([(1, 0, 5), (1, 1, 6), (2, 1, 7)]))) == []
    # Window 0 ends at 1 s: closed when the watermark reaches it.
    assert plain(worker.run(window_rows([(1, 0, 5)]), 1000, 0)) == [(1, 0, 2, 10)]
    assert worker.stats.rows_removed == 1
    late = worker.run(window_rows([(1, 0, 5), (2, 5, 1)]), 2000, 1000)
    assert plain(late) == [(1, 1, 1, 6), (2, 1, 1, 7)]
    assert worker.stats.rows_dropped_late == 1
    assert plain(worker.run(window_rows([]), 10_000, 2000)) == [(2, 5, 1, 1)]
    assert worker.dump() == []
    restored = windowed(append=True)
    for log in worker.logs[:3]:
        for group, sections in log.items():
            restored.tables[group].replay(sections)
    assert plain(restored.run(window_rows([]), 10_000, 2000)) == [(2, 5, 1, 1)]


def test_update_evicts_closed_windows() -> None:
    worker = windowed(append=False)
    assert plain(worker.run(window_rows([(1, 0, 5), (1, 9, 6)]))) == [(1, 0, 1, 5), (1, 9, 1, 6)]
    assert plain(worker.run(window_rows([(1, 0, 1)]), 1000, 0)) == [(1, 0, 2, 6)]
    assert len(worker.dump()) == 1
    for table in worker.tables.values():
        table.undo()
    assert len(worker.dump()) == 2
    assert plain(worker.run(window_rows([(1, 0, 1)]), 1000, 0)) == [(1, 0, 2, 6)]


@pytest.mark.parametrize("limit", [3, 16, 1000])
def test_large_batches_are_cut(limit: int) -> None:
    rng = np.random.default_rng(8)
    rows = [(int(rng.zipf(1.5)) % 50, int(rng.integers(0, 3)), i) for i in range(800)]
    whole, cut = windowed(append=False), windowed(append=False)
    cut.engine._piece_rows_max = limit
    for part in (rows[:500], rows[500:]):
        assert plain(cut.run(window_rows(part))) == plain(whole.run(window_rows(part)))
    assert cut.dump() == whole.dump()


def sessions(append: bool) -> MemoryWorker:
    inputs = pa.schema([*KEY, (SESSION_START, MOMENT), (SESSION_END, MOMENT), ("v", pa.int64())])
    window = pa.struct([("start", MOMENT), ("end", MOMENT)])
    output = pa.schema(
        [*KEY, ("window", window), ("n", pa.int64()), ("s", pa.int64()), ("f", pa.int64())]
    )
    measures = [
        Measure("n", Count(), None),
        Measure("s", Sum(pa.int64(), True), "v"),
        Measure("f", Nth(pa.int64(), last=False, ignore_nulls=False), "v"),
    ]
    processor = SessionProcessor(measures, output, append=append, expires=True)
    return MemoryWorker(ColumnarDefinition(processor, KEY, inputs, output, late=SESSION_END))


def session_rows(rows: list[tuple[int, int, int]]) -> Any:
    """Rows (sensor, second, value); the gap is 10 s."""
    sensors = np.array([r[0] for r in rows], np.int64)
    starts = np.array([r[1] for r in rows], np.int64) * 1_000_000
    return pa.table(
        {
            HASH: hashes_of(sensors),
            "sensor": sensors,
            SESSION_START: pa.array(starts).cast(MOMENT),
            SESSION_END: pa.array(starts + 10_000_000).cast(MOMENT),
            "v": [r[2] for r in rows],
        }
    )


def spans(output: Any) -> list[tuple[int, ...]]:
    """Rows (sensor, start, end, n, s, first)."""
    return sorted(
        (
            r["sensor"],
            int(r["window"]["start"].timestamp()),
            int(r["window"]["end"].timestamp()),
            r["n"],
            r["s"],
            r["f"],
        )
        for r in output.to_pylist()
    )


def test_sessions_join_across_batches() -> None:
    worker = sessions(append=False)
    assert spans(worker.run(session_rows([(1, 0, 1), (1, 25, 2), (2, 0, 3)]))) == [
        (1, 0, 10, 1, 1, 1),
        (1, 25, 35, 1, 2, 2),
        (2, 0, 10, 1, 3, 3),
    ]
    # Second 9 touches the first session, 16 joins it to the second.
    assert spans(worker.run(session_rows([(1, 16, 7), (1, 9, 5)]))) == [(1, 0, 35, 4, 15, 1)]
    assert spans(worker.run(session_rows([(1, 100, 1), (2, 4, 4)]), 20_000, 0)) == [
        (1, 100, 110, 1, 1, 1),
        (2, 0, 14, 2, 7, 3),
    ]
    assert len(worker.dump()) == 1


def test_sessions_append() -> None:
    worker = sessions(append=True)
    assert spans(worker.run(session_rows([(1, 0, 1), (1, 25, 2), (2, 5, 3)]))) == []
    assert spans(worker.run(session_rows([]), 12_000, 0)) == [(1, 0, 10, 1, 1, 1)]
    before = worker.dump()
    assert spans(worker.run(session_rows([(2, 1, 9), (1, 34, 1)]), 15_000, 12_000)) == [
        (2, 5, 15, 1, 3, 3)
    ]
    assert worker.stats.rows_dropped_late == 1
    for table in worker.tables.values():
        table.undo()
    assert worker.dump() == before
    worker.epoch -= 1
    worker.run(session_rows([(2, 1, 9), (1, 34, 1)]), 15_000, 12_000)
    assert spans(worker.run(session_rows([]), 100_000, 15_000)) == [(1, 25, 44, 2, 3, 2)]
    assert worker.dump() == []


@pytest.mark.parametrize("limit", [3, 20])
def test_sessions_in_large_batches(limit: int) -> None:
    rng = np.random.default_rng(9)
    rows = [(int(rng.integers(0, 3)), int(rng.integers(0, 2000)), i) for i in range(400)]
    whole, cut = sessions(append=False), sessions(append=False)
    cut.engine._piece_rows_max = limit
    for part in (rows[:200], rows[200:]):
        a, b = spans(cut.run(session_rows(part))), spans(whole.run(session_rows(part)))
        assert a == b
    assert cut.dump() == whole.dump()


def test_state_that_does_not_fit_into_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many keys with much state: as many at a time as fit, with the results of all at once."""
    inputs = KEY.append(pa.field("text", pa.string()))
    closes = [pa.field(WINDOW_START, MOMENT), pa.field(WINDOW_END, MOMENT)]
    keys = pa.schema([*KEY, *closes])
    window = pa.struct([("start", MOMENT), ("end", MOMENT)])
    rest = [pa.field("n", pa.int64()), pa.field("text", pa.string())]
    output = pa.schema([*KEY, pa.field("window", window), *rest])
    measures = [
        Measure("n", Count(), None),
        Measure("text", Nth(pa.string(), last=False, ignore_nulls=True), "text"),
    ]
    results = []
    for limit in (2**31 - 1, 2000):
        monkeypatch.setattr(arena, "_ARRAY_BYTES_MAX", limit)
        processor = AggregateProcessor(
            measures, output, windowed=True, append=True, expiry=WINDOW_END
        )
        schema = pa.schema([*keys, inputs.field("text")])
        worker = MemoryWorker(ColumnarDefinition(processor, keys, schema, output))
        for texts in (True, False, False):
            numbers = np.arange(200) % 100
            times = pa.array(np.zeros(200, np.int64), MOMENT), pa.array(np.full(200, 9), MOMENT)
            values = [f"{i:0100}" if texts else None for i in numbers]
            columns = [hashes_of(numbers), numbers, *times, pa.array(values, pa.string())]
            assert not worker.run(pa.table(columns, [HASH, *schema.names])).num_rows
        state = worker.dump()
        none = pa.schema([pa.field(HASH, pa.int64()), *schema]).empty_table()
        closed = worker.run(none, watermark_ms=1)
        results.append((state, sorted(map(repr, closed.to_pylist()))))
        assert {row["n"] for row in closed.to_pylist()} == {6}
    assert results[0] == results[1]
    assert len(results[0][1]) == 100


def test_too_much_state_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow would return an array with offsets that have gone round."""
    monkeypatch.setattr(arena, "_ARRAY_BYTES_MAX", 99)
    two = [arena.Arena(pa.string()), arena.Arena(pa.string())]
    wanted = [(some, some.append(pa.array(["x" * 50]))) for some in two]
    with pytest.raises(arena.TooManyBytes, match="2 GiB"):
        arena.gather(pa.string(), wanted)


class Noting(Highest):
    """Notes where another thread would find each of its calls; fails in the second one."""

    seen: ClassVar[list[str]] = []
    worker: MemoryWorker | None = None

    def process(self, batch: KeyedBatch) -> Update:
        assert self.worker is not None
        place = self.worker.engine.place()
        assert place is not None
        assert place.key is None
        self.seen.append(place.method)
        if len(self.seen) > 1:
            raise ValueError("no")
        return Update()


def test_another_thread_can_tell_which_method_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = KEY.append(pa.field("reading", pa.float64()))
    worker = MemoryWorker(ColumnarDefinition(Noting(), KEY, inputs, inputs))
    monkeypatch.setattr(Noting, "worker", worker)
    monkeypatch.setattr(Noting, "seen", [])
    rows = pa.table({HASH: hashes_of([1]), "sensor": [1], "reading": [1.0]})
    worker.run(rows)
    assert worker.engine.place() is None
    with pytest.raises(ProcessorError):
        worker.run(rows)
    assert worker.engine.place() is None
    assert Noting.seen == ["Noting.process", "Noting.process"]
