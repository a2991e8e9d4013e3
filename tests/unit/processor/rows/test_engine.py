"""The engine: calls per key, order of phases, outputs, timers, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from tests.unit.processor.rows.processors import Alarm, Counter
from tests.unit.processor.rows.support import Service, define

from anabranch.errors import ProcessorError

KV = "k long, v long"
KC = "k long, c long"


class Scripted(StatefulProcessor):
    """Runs given functions; for what no ordinary processor does."""

    def __init__(self, body: Callable[..., Any], init: Callable[..., Any] | None = None) -> None:
        self.body = body
        self.on_init = init

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long")
        self.items = handle.getListState("items", "n long")
        if self.on_init is not None:
            self.on_init(self, handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        return self.body(self, key, rows)


def service(processor: StatefulProcessor, output: str = KC, **options: Any) -> Service:
    definition = define(processor, KV, ["k"], output, **options)
    return Service(definition).with_types(KV)


def pairs(outputs: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in outputs}


def test_counts_over_batches() -> None:
    worker = service(Counter())
    assert pairs(worker.batch([(1, 0), (2, 0), (1, 0)])) == {(1, 2), (2, 1)}
    assert pairs(worker.batch([(2, 0), (None, 0)])) == {(2, 2), (None, 1)}
    assert worker.stats.rows_updated == 2
    assert sum(state.num_rows for state in worker.states.values()) == 3
    assert all(state.num_bytes >= 0 for state in worker.states.values())


def test_all_rows_of_a_key_come_in_one_call_and_in_order() -> None:
    def body(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        yield Row(k=key[0], c=int("".join(str(row.v) for row in rows)))

    worker = service(Scripted(body))
    rows = [(k, v) for v in range(1, 6) for k in (5, 3)]
    assert pairs(worker.batch(rows)) == {(5, 12345), (3, 12345)}


def test_rows_that_were_not_read_do_not_reach_the_next_key() -> None:
    def body(self: Any, key: Any, rows: Any) -> list[Row]:
        return [Row(k=key[0], c=next(rows).k)]

    worker = service(Scripted(body))
    assert pairs(worker.batch([(k, v) for k in range(20) for v in range(3)])) == {
        (k, k) for k in range(20)
    }


def test_generator_is_run_with_its_own_key() -> None:
    def body(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        for row in rows:
            self.value.update((row.v,))
            yield Row(k=key[0], c=self.value.get()[0])

    worker = service(Scripted(body))
    rows = [(k, k * 10) for k in range(30)]
    assert pairs(worker.batch(rows)) == {(k, k * 10) for k in range(30)}


def test_input_rows_are_rows() -> None:
    seen: list[Any] = []

    def body(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        seen.extend(rows)
        return iter(())

    definition = define(Counter(), "k long, count long", ["k"], KC)
    worker = Service(definition).with_types("k long, count long")
    worker.engine._processor = Scripted(body)  # type: ignore[attr-defined]
    assert worker.batch([(1, 2)]) == []
    (row,) = seen
    assert isinstance(row, Row)
    assert row == Row(k=1, count=2)
    assert (row.k, row["count"], row[1], row.asDict()) == (1, 2, 2, {"k": 1, "count": 2})
    assert callable(row.count), "like in Spark, a method of tuple hides the field"
    assert repr(row) == "Row(k=1, count=2)"
    import pickle

    assert type(pickle.loads(pickle.dumps(row))) is Row
    with pytest.raises(AttributeError):
        _ = row.missing


def test_none_and_lists_are_fine_outputs() -> None:
    assert service(Scripted(lambda *_: None)).batch([(1, 1)]) == []
    assert service(Scripted(lambda *_: [Row(k=1, c=2)])).batch([(1, 1)]) == [{"k": 1, "c": 2}]


def test_fields_are_matched_by_name_and_tuples_by_position() -> None:
    outputs = [Row(c=2, k=1), Row(k=1), Row(c=3, z=0), (5, 6)]
    found = service(Scripted(lambda *_: outputs)).batch([(1, 1)])
    assert [tuple(row.values()) for row in found] == [(1, 2), (1, None), (None, 3), (5, 6)]


@pytest.mark.parametrize("fields", [("k", "c"), ("c", "k"), ("c", "z"), ("z", "c", "k")])
def test_rows_of_a_row_class_are_matched_by_name(fields: tuple[str, ...]) -> None:
    made = Row(*fields)
    values = {"k": 1, "c": 2, "z": 3}
    outputs = [made(*(values[name] for name in fields)) for _ in range(2)]
    outputs.append(made(values[fields[0]]))  # a row class takes fewer values, too
    for rows in (outputs[:2], outputs[2:], outputs):
        found = service(Scripted(lambda *_, rows=rows: rows)).batch([(1, 1)])
        assert found == [{name: row.asDict().get(name) for name in ("k", "c")} for row in rows]


def test_fields_that_are_not_declared_are_dropped_silently_as_in_spark() -> None:
    import pandas as pd

    rows = [Row(k=1, c=2, more=3), Row(a=0, k=4, c=5)]
    assert pairs(service(Scripted(lambda *_: rows)).batch([(1, 1)])) == {(1, 2), (4, 5)}
    frames = [pd.DataFrame({"a": [0], "k": [1], "c": [2]}), pd.DataFrame([[4, 5, 6]])]
    definition = define(Scripted(lambda *_: frames), KV, ["k"], KC, use_pandas=True)
    assert pairs(Service(definition).with_types(KV).batch([(1, 1)])) == {(1, 2), (4, 5)}


@pytest.mark.parametrize(
    ("output", "message"),
    [((1, 2, 3), "3 values"), (7, "where a Row is expected"), (Row(k="x", c=1), "column 'k'")],
)
def test_wrong_outputs(output: Any, message: str) -> None:
    with pytest.raises(ProcessorError, match=message):
        service(Scripted(lambda *_: [output])).batch([(1, 1)])


def test_user_errors_carry_the_traceback_and_change_nothing() -> None:
    def body(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        self.value.update((1,))
        if next(rows).v == 5:
            raise KeyError("boom")
        return iter(())

    worker = service(Scripted(body))
    worker.batch([(1, 0)])
    before = worker.content()
    with pytest.raises(ProcessorError) as caught:
        worker.batch([(k, 5) for k in range(10)])
    text = str(caught.value)
    assert "KeyError: 'boom'" in text
    assert "in body" in text
    assert "handleInputRows failed for key" in text
    assert worker.content() == before


def test_values_that_do_not_fit_their_type_fail() -> None:
    def body(self: Any, key: Any, rows: Any) -> None:
        self.value.update((2**70,))

    with pytest.raises(ProcessorError, match="does not fit"):
        service(Scripted(body)).batch([(1, 1)])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda s, *_: s.handle.getValueState("w", "n long"), "INVALID_HANDLE_STATE"),
        (lambda s, *_: s.handle.deleteIfExists("value"), "INVALID_HANDLE_STATE"),
        (lambda s, *_: s.handle.registerTimer(1), "INVALID_TIME_MODE"),
        (lambda s, *_: s.handle.deleteTimer(1), "INVALID_TIME_MODE"),
        (lambda s, *_: s.handle.listTimers(), "INVALID_TIME_MODE"),
        (lambda s, *_: s.value.update((1, 2)), "1 fields are required while 2"),
        (lambda s, *_: s.value.update(("x",)), "FIELD_DATA_TYPE_UNACCEPTABLE"),
        (lambda s, *_: s.value.update(5), "TypeError"),
        (lambda s, *_: s.items.put([]), "EMPTY_LIST_VALUE"),
        (lambda s, *_: s.items.appendList([]), "EMPTY_LIST_VALUE"),
    ],
)
def test_misuse(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(ProcessorError, match=message):
        service(Scripted(body)).batch([(1, 1)])


@pytest.mark.parametrize(
    ("init", "time_mode", "message"),
    [
        (lambda s, h: h.getListState("value", "n long"), "none", "DUPLICATE_STATE_VARIABLE"),
        (lambda s, h: h.getListState("w", "n long", 5), "none", "TIME_MODE_TO_ASSIGN_TTL"),
        (lambda s, h: h.getListState("w", "n long", 5), "eventtime", "TIME_MODE_TO_ASSIGN_TTL"),
        (lambda s, h: h.getListState("w", "n long", 0), "processingtime", "MUST_BE_POSITIVE"),
        (lambda s, h: h.registerTimer(5), "processingtime", "INVALID_HANDLE_STATE"),
        (lambda s, h: s.value.get(), "none", "Implicit key not found"),
        (lambda s, h: s.value.update((1,)), "none", "Implicit key not found"),
    ],
)
def test_misuse_in_init(init: Callable[..., Any], time_mode: str, message: str) -> None:
    with pytest.raises(PySparkRuntimeError, match=message):
        define(Scripted(lambda *_: None, init), KV, ["k"], KC, time_mode)


class Changing(StatefulProcessor):
    """Defines a variable and deletes it again; tells of what comes of using it."""

    def __init__(self, again: bool = False) -> None:
        self.again = again

    def init(self, handle: Any) -> None:
        self.kept = handle.getValueState("kept", "n long")
        self.gone = handle.getValueState("gone", "n long")
        self.names = handle.getListState("names", "s string")
        handle.deleteIfExists("gone")
        handle.deleteIfExists("names")
        if self.again:
            handle.getListState("gone", "s string")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        self.kept.update(((self.kept.get() or (0,))[0] + 1,))
        with pytest.raises(PySparkRuntimeError) as caught:
            self.gone.update((1,))
        expected = "Error updating value state: Value state gone is not initialized."
        assert str(caught.value) == expected
        assert list(self.names.get()) == []
        yield Row(k=key[0], c=self.kept.get()[0])


def test_a_variable_deleted_after_its_definition_is_left_out_as_in_spark() -> None:
    worker = service(Changing())
    assert pairs(worker.batch([(1, 1)])) == {(1, 1)}
    assert pairs(worker.batch([(1, 1)])) == {(1, 2)}
    with pytest.raises(PySparkRuntimeError, match="already been defined"):
        service(Changing(again=True))


def test_initial_state_comes_first_also_for_keys_without_rows() -> None:
    initial = "k long, start long"
    definition = define(Counter(), KV, ["k"], KC, initial_schema=initial)
    worker = Service(definition).with_types(KV, initial)
    first = [(1, 100), (7, 1000), (1, 50)]
    assert pairs(worker.batch([(1, 0), (2, 0)], initial=first)) == {(1, 151), (2, 1)}
    assert pairs(worker.batch([(7, 0)])) == {(7, 1001)}


def test_processing_time_timers() -> None:
    worker = service(Alarm(), time_mode="processingtime")
    assert pairs(worker.batch([(1, 0), (2, 0), (1, 0)], now_ms=100)) == {(1, -1), (2, -1)}
    assert worker.batch(now_ms=109) == []
    assert pairs(worker.batch([(3, 0)], now_ms=110)) == {(3, -1), (1, 2), (2, 1)}
    assert worker.stats.timers_fired == 2
    assert pairs(worker.batch(now_ms=500)) == {(3, 1)}
    assert worker.batch(now_ms=900) == []
    assert sum(state.num_rows for state in worker.states.values()) == 0


def test_event_time_timers_fire_when_the_watermark_reaches_them() -> None:
    worker = service(Alarm(event_time=True), time_mode="eventtime")
    assert pairs(worker.batch([(1, 0)], watermark_ms=0)) == {(1, -1)}
    assert worker.batch(watermark_ms=9, now_ms=10**12) == []
    assert pairs(worker.batch(watermark_ms=10)) == {(1, 1)}


class Chain(StatefulProcessor):
    """Registers and deletes timers while timers fire; what happens is Spark's behaviour."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        for row in rows:
            self.handle.registerTimer(row.v)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        assert isinstance(key, Row)
        assert key == (key.k,)
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        assert expiry_ms in list(self.handle.listTimers()) or expiry_ms == 9900
        if expiry_ms == 9000:
            self.handle.registerTimer(9000)
            self.handle.registerTimer(9500)
            self.handle.deleteTimer(9900)
        yield Row(k=key[0], c=expiry_ms)


def test_timers_in_timers() -> None:
    worker = service(Chain(), time_mode="eventtime")
    worker.batch([(1, 9000), (1, 10001), (1, 9900), (1, 10000), (1, 8000)])
    fired = [row["c"] for row in worker.batch(watermark_ms=10000)]
    assert fired == [8000, 9000, 9900, 10000]
    assert [row["c"] for row in worker.batch(watermark_ms=10000)] == [9500]
    assert [row["c"] for row in worker.batch(watermark_ms=20000)] == [10001]


def test_late_rows_are_dropped() -> None:
    schema = "k long, at timestamp"
    definition = define(Counter(), schema, ["k"], KC, "eventtime", event_time="at")
    worker = Service(definition).with_types(schema)
    rows = [(1, 10_000), (1, 10_001), (2, 9_999), (3, None)]
    found = worker.batch([(k, t and t * 1000) for k, t in rows], late_watermark_ms=10_000)
    assert pairs(found) == {(1, 1), (3, 1)}
    assert worker.stats.rows_dropped_late == 2


def test_equal_hashes_of_different_keys_stay_apart() -> None:
    worker = service(Counter())
    worker.hash = lambda keys: np.full(len(keys), 42, np.int64)
    rows = [(k % 7, 0) for k in range(50)]
    want = {(k, len([1 for r, _ in rows if r == k])) for k in range(7)}
    assert pairs(worker.batch(rows)) == want
    assert pairs(worker.batch(rows)) == {(k, 2 * n) for k, n in want}


def test_no_key_at_all() -> None:
    definition = define(Counter(), KV, [], KC)
    worker = Service(definition).with_types(KV)
    worker.engine._processor.handleInputRows = (  # type: ignore[attr-defined]
        lambda key, rows, _: [Row(k=len(key), c=sum(1 for _ in rows))]
    )
    assert worker.batch([(1, 0), (2, 0)]) == [{"k": 0, "c": 2}]


def test_the_same_transaction_twice_gives_the_same() -> None:
    worker = service(Counter())
    worker.batch([(k, 0) for k in range(40)])
    first = worker.batch([(k, 0) for k in range(60)])
    for state in worker.states.values():
        state.undo()
        state.undo()
    assert worker.batch([(k, 0) for k in range(60)]) == first


def test_close_is_called_and_its_failure_told() -> None:
    worker = service(Counter())
    worker.engine.close()

    class Broken(Counter):
        def close(self) -> None:
            raise RuntimeError("no")

    with pytest.raises(ProcessorError, match="close failed"):
        service(Broken()).engine.close()


def test_output_has_the_key_group_first() -> None:
    worker = service(Counter())
    worker.batch([(k, 0) for k in range(50)])
    (table,) = worker.transaction.outputs
    assert table.schema.field(0).type == pa.int32()
    assert len(set(table.column(0).to_pylist())) > 1


def test_frames_look_as_in_spark() -> None:
    import datetime

    import pandas as pd
    from pyspark.sql import types as T

    seen: list[Any] = []

    class Looking(Scripted):
        def init(self, handle: Any) -> None:
            pass

    schema = T.StructType(
        [
            T.StructField("k", T.IntegerType()),
            T.StructField("at", T.TimestampType()),
            T.StructField("small", T.ShortType()),
            T.StructField("flag", T.BooleanType()),
            T.StructField("items", T.ArrayType(T.IntegerType())),
        ]
    )
    definition = define(Looking(lambda *_: None), schema, ["k", "at"], KC, use_pandas=True)
    worker = Service(definition).with_types(schema)
    worker.engine._processor.handleInputRows = (  # type: ignore[attr-defined]
        lambda key, rows, _: seen.append((key, *rows))
    )
    at = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    worker.batch([(1, at, 4, True, [1, None]), (1, at, 4, False, None), (2, at, None, None, [])])
    assert sorted(key for key, _ in seen) == [(k, pd.Timestamp("2020-01-01")) for k in (1, 2)]
    frames = {key[0]: frame for key, frame in seen}
    assert list(frames[1].columns) == schema.names
    assert list(frames[1].index) == [0, 1]
    kinds = ["int64", "datetime64[ns]", "float64", "bool", "object"]
    assert list(map(str, frames[1].dtypes)) == kinds
    assert list(map(str, frames[2].dtypes)) == [*kinds[:3], "object", "object"]
    assert frames[1]["items"][0].tolist() == [1, None]


def test_frames_that_do_not_fit() -> None:
    import pandas as pd

    for given, message in [
        (pd.DataFrame({"k": [1]}), "without the column"),
        (pd.DataFrame([[1]]), "1 columns"),
        (pd.DataFrame([[1, 2, 3]], columns=["k", "k", "c"]), "several columns k"),
        (pd.DataFrame({"k": ["x"], "c": [1]}), "column 'k'"),
        (Row(k=1, c=1), "pandas.DataFrame"),
    ]:
        definition = define(Scripted(lambda *_, g=given: [g]), KV, ["k"], KC, use_pandas=True)
        with pytest.raises((ProcessorError, ValueError), match=message):
            Service(definition).with_types(KV).batch([(1, 1)])
    frames = [pd.DataFrame(), pd.DataFrame([[5, 6], [7, 8]]), pd.DataFrame({"c": [1], "k": [None]})]
    definition = define(Scripted(lambda *_: frames), KV, ["k"], KC, use_pandas=True)
    worker = Service(definition).with_types(KV)
    assert pairs(worker.batch([(1, 1)])) == {(5, 6), (7, 8), (None, 1)}
    assert worker.transaction.outputs[0].num_rows == 3


class Noting(StatefulProcessor):
    """Notes where another thread would find each of its calls."""

    seen: ClassVar[list[tuple[str, str | None]]] = []
    worker: Service | None = None

    @classmethod
    def note(cls) -> None:
        place = None if cls.worker is None else cls.worker.engine.place()
        if place is not None:
            cls.seen.append((place.method, None if place.key is None else place.key()))

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.note()

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        self.handle.registerTimer(5)
        self.note()
        yield Row(k=key[0], c=1)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        self.note()
        return iter(())

    def close(self) -> None:
        self.note()


def test_another_thread_can_tell_where_user_code_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which method, for which key; nothing of it is left where the engine does its own work."""
    seen: list[tuple[str, str | None]] = []
    monkeypatch.setattr(Noting, "seen", seen)
    worker = service(Noting(), time_mode="processingtime")
    monkeypatch.setattr(Noting, "worker", worker)
    worker.batch([(1, 0), (2, 0)], now_ms=1)
    assert worker.engine.place() is None
    worker.batch(now_ms=9)
    assert worker.engine.place() is None
    rows, timers = "Noting.handleInputRows", "Noting.handleExpiredTimer"
    assert sorted(seen[:2]) == [(rows, "(1,)"), (rows, "(2,)")]
    assert seen[2:4] == [("Noting.close", None), ("Noting.init", None)]
    assert sorted(seen[4:6]) == [(timers, "(1,)"), (timers, "(2,)")]
    assert seen[6:] == [("Noting.close", None)]


class ManyTimers(StatefulProcessor):
    """Three timers of a key; keeps what a watch would take for one call."""

    marks: ClassVar[list[object]] = []
    worker: Service | None = None

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for time_ms in (2, 3, 4):
            self.handle.registerTimer(time_ms)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        place = None if self.worker is None else self.worker.engine.place()
        assert place is not None
        self.marks.append(place.mark)
        return iter(())

    def close(self) -> None:
        pass


def test_each_timer_of_a_key_is_a_call_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else many short ones look like one that does not come back."""
    marks: list[object] = []
    monkeypatch.setattr(ManyTimers, "marks", marks)
    worker = service(ManyTimers(), time_mode="processingtime")
    monkeypatch.setattr(ManyTimers, "worker", worker)
    worker.batch([(1, 0)], now_ms=1)
    worker.batch(now_ms=9)
    assert len({id(mark) for mark in marks}) == len(marks) == 3


def test_after_an_error_user_code_is_nowhere() -> None:
    def body(p: Any, key: Any, rows: Any) -> Any:
        raise ValueError("no")

    worker = service(Scripted(body))
    with pytest.raises(ProcessorError):
        worker.batch([(1, 0)])
    assert worker.engine.place() is None
