"""Processors that do what their input rows say: each row is a command on state or timers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

INPUT = "g string, h int, seq long, op string, a long, b string, t double"
OUTPUT = "g string, h int, seq long, op string, result string, now long, wm long"
COLUMNS = ("g", "h", "seq", "op", "result", "now", "wm")

STATE_OPS = [
    *("v.update", "v.update", "v.get", "v.exists", "v.clear"),
    *("l.append", "l.append", "l.extend", "l.put", "l.get", "l.exists", "l.clear"),
    *("m.put", "m.put", "m.put", "m.get", "m.has", "m.remove", "m.exists", "m.clear"),
    *("m.items", "m.keys", "m.values"),
    *("w.update", "w.get", "w.clear"),
]
TIMER_OPS = ["t.add", "t.add", "t.add", "t.delete", "t.list"]


class Scripted(StatefulProcessor):
    """Runs commands and tells their outcome; the state variables are those of every test."""

    def __init__(self, time_mode: str, ttl_ms: int | None = None) -> None:
        self._time_mode = time_mode
        self._ttl_ms = ttl_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._calls: dict[Any, int] = {}
        handle.deleteIfExists("gone")
        self._value = handle.getValueState("v", "n long, s string", self._ttl_ms)
        self._list = handle.getListState("l", "n long, s string", self._ttl_ms)
        self._map = handle.getMapState("m", "s string, n long", "n long", self._ttl_ms)
        self._other = handle.getValueState("w", "xs array<struct<a: int, b: string>>")

    def close(self) -> None:
        del self._value

    def command(self, row: Any, now: int) -> Any:
        """Run one command."""
        kind, what = row.op.split(".")
        run = getattr(self, f"_on_{kind}")
        try:
            return run(what, None if row.a is None else int(row.a), row.b, now)
        except PySparkException as error:
            return type(error).__name__, str(error)

    def _on_v(self, what: str, a: int | None, b: str | None, now: int) -> Any:
        if what == "update":
            return self._value.update((a, b))
        return getattr(self._value, what)()

    def _on_w(self, what: str, a: int | None, b: str | None, now: int) -> Any:
        if what == "update":
            return self._other.update(([(a, b), (None, None), None, (1, "x")],))
        return getattr(self._other, what)()

    def _on_l(self, what: str, a: int | None, b: str | None, now: int) -> Any:
        if what == "append":
            return self._list.appendValue((a, b))
        if what in ("extend", "put"):
            elements = [(a, b), (None, b), (7, None)]
            return self._list.put(elements) if what == "put" else self._list.appendList(elements)
        result = getattr(self._list, what)()
        return list(result) if what == "get" else result

    def _on_m(self, what: str, a: int | None, b: str | None, now: int) -> Any:
        key = (b, None if a is None else a % 3)
        if what == "put":
            return self._map.updateValue(key, (a,))
        if what in ("get", "has", "remove"):
            method = {"get": "getValue", "has": "containsKey", "remove": "removeKey"}[what]
            return getattr(self._map, method)(key)
        if what == "items":
            return sorted(self._map.iterator(), key=repr)
        result = getattr(self._map, what)()
        return sorted(result, key=repr) if what in ("keys", "values") else result

    def _on_t(self, what: str, a: int | None, b: str | None, now: int) -> Any:
        if what == "list":
            return sorted(self._handle.listTimers())
        assert a is not None
        moment = now + a if self._time_mode == "ProcessingTime" else a * 1000
        if what == "add":
            return self._handle.registerTimer(moment)
        return self._handle.deleteTimer(moment)

    def _clocks(self, values: Any) -> tuple[int, int]:
        # In event time mode two queries have different batch times.
        processing = self._time_mode == "ProcessingTime"
        now = values.getCurrentProcessingTimeInMs() if processing else 0
        return now, values.getCurrentWatermarkInMs()

    def on_rows(self, key: Any, rows: list[Any], values: Any) -> Iterator[tuple[Any, ...]]:
        now, watermark = self._clocks(values)
        # Always 1: once per key and batch, and the processor is a new one in each batch.
        calls = self._calls[tuple(key)] = self._calls.get(tuple(key), 0) + 1
        for row in sorted(rows, key=lambda row: row.seq):
            result = self.command(row, now)
            shown = f"{calls} {type(result).__name__} {result!r}"
            yield (*key, int(row.seq), row.op, shown, now, watermark)

    def on_timer(self, key: Any, values: Any, expired: Any) -> Iterator[tuple[Any, ...]]:
        now, watermark = self._clocks(values)
        moment = expired.getExpiryTimeInMs()
        seen = self._value.get(), list(self._list.get()), sorted(self._handle.listTimers())
        yield (*key, moment, "timer", repr(seen), now, watermark)
        if moment % 2000 == 0:
            self._handle.registerTimer(moment + 3000)
            self._value.clear()
        else:
            self._list.appendValue((moment, "timer"))

    def on_initial(self, key: Any, rows: list[Any], values: Any) -> None:
        now, _ = self._clocks(values)
        for row in rows:
            self._value.update((int(row.a), "initial"))
            self._list.appendValue((int(row.a), row.b))
            if self._time_mode != "None":
                self._handle.registerTimer(now + int(row.a))


class ScriptedRows(Scripted):
    """For transformWithState."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for values in self.on_rows(key, list(rows), timerValues):
            yield Row(**dict(zip(COLUMNS, values, strict=True)))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        for values in self.on_timer(key, timerValues, expiredTimerInfo):
            yield Row(**dict(zip(COLUMNS, values, strict=True)))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.on_initial(key, [initialState], timerValues)


class ScriptedFrames(Scripted):
    """For transformWithStateInPandas."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        found = [row for frame in rows for row in _records(frame)]
        yield pd.DataFrame(list(self.on_rows(key, found, timerValues)), columns=list(COLUMNS))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        for values in self.on_timer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([values], columns=list(COLUMNS))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.on_initial(key, _records(initialState), timerValues)


def _records(frame: Any) -> list[Any]:
    """Rows of a DataFrame, with None where pandas has NaN."""
    return list(frame.astype(object).where(frame.notna(), None).itertuples(index=False))


def commands(
    seed: int, batches: int, rows: int, ops: Sequence[str], step: float = 0, null_h: bool = False
) -> list[list[dict[str, Any]]]:
    """Random commands on composite keys; event time grows by `step` a batch.

    Spark's pandas variant takes rows with a null in an integer key column apart: nulls there are
    only for `transformWithState`.
    """
    chance = random.Random(seed)
    return [
        [
            {
                "g": chance.choice(["x", "y", None]),
                "h": chance.choice([1, 2, None if null_h else 3]),
                "seq": batch * 1000 + at,
                "op": chance.choice(ops),
                "a": chance.randrange(40),
                "b": chance.choice(["p", "q", "", None]),
                "t": 10 + batch * step + chance.randrange(-12, 12),
            }
            for at in range(rows)
        ]
        for batch in range(batches)
    ]
