"""TTL against a model: what is seen, what is removed, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from tests.unit.processor.rows.support import Service, define

TTL_MS = 10
SCHEMA = "k long, op string, x long"
OPS = ("look", "set", "clear", "append", "put", "mset", "mdel")
BATCH = st.tuples(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(OPS), st.integers(0, 2)), max_size=6),
    st.integers(0, 7),
)


class Expiring(StatefulProcessor):
    """Does what the rows say, then shows all its state."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "x long", TTL_MS)
        self.items = handle.getListState("items", "x long", TTL_MS)
        self.map = handle.getMapState("map", "x long", "x long", TTL_MS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            match row.op:
                case "set":
                    self.value.update((row.x,))
                case "clear":
                    self.value.clear()
                case "append":
                    self.items.appendValue((row.x,))
                case "put":
                    self.items.put([(row.x,), (5,)])
                case "mset":
                    self.map.updateValue((row.x,), (row.x,))
                case "mdel":
                    self.map.removeKey((row.x,))
        seen = (self.value.get(), list(self.items.get()), sorted(self.map.keys()))
        exist = (self.value.exists(), self.items.exists(), self.map.exists())
        assert exist == (seen[0] is not None, bool(seen[1]), bool(seen[2]))
        assert sorted(self.map.values()) == sorted(v for _, v in self.map.iterator())
        assert all(self.map.containsKey((x,)) == ((x,) in seen[2]) for x in range(3))
        yield Row(k=key[0], text=repr(seen))


class Model:
    """The same with expiries kept in plain lists."""

    def __init__(self) -> None:
        self.value: dict[int, tuple[int, int]] = {}
        self.items: dict[int, list[tuple[int, int]]] = {}
        self.map: dict[int, dict[int, int]] = {}

    def run(self, k: int, op: str, x: int, now_ms: int) -> None:
        expiry_ms = now_ms + TTL_MS
        items = self.items.setdefault(k, [])
        entries = self.map.setdefault(k, {})
        match op:
            case "set":
                self.value[k] = (x, expiry_ms)
            case "clear":
                self.value.pop(k, None)
            case "append":
                items.append((x, expiry_ms))
            case "put":
                items[:] = [(x, expiry_ms), (5, expiry_ms)]
            case "mset":
                entries[x] = expiry_ms
            case "mdel":
                entries.pop(x, None)

    def seen(self, k: int, now_ms: int) -> str:
        value = self.value.get(k)
        return repr((
            (value[0],) if value and value[1] > now_ms else None,
            [(x,) for x, expiry_ms in self.items.get(k, []) if expiry_ms > now_ms],
            [(x,) for x, expiry_ms in sorted(self.map.get(k, {}).items()) if expiry_ms > now_ms],
        ))  # fmt: skip

    def live(self, now_ms: int) -> int:
        expiries = [expiry_ms for _, expiry_ms in self.value.values()]
        expiries += [expiry_ms for items in self.items.values() for _, expiry_ms in items]
        expiries += [expiry_ms for entries in self.map.values() for expiry_ms in entries.values()]
        return sum(expiry_ms > now_ms for expiry_ms in expiries)


@given(st.lists(BATCH, max_size=15))
def test_like_the_model(batches: Any) -> None:
    definition = define(Expiring(), SCHEMA, ["k"], "k long, text string", "processingtime")
    worker = Service(definition, groups=2).with_types(SCHEMA)
    model = Model()
    now_ms = 100
    for rows, step in batches:
        now_ms += step
        for k, op, x in rows:
            model.run(k, op, x, now_ms)
        found = {row["k"]: row["text"] for row in worker.batch(rows, now_ms=now_ms)}
        assert found == {k: model.seen(k, now_ms) for k, _, _ in rows}
        # What has expired is gone from the state too, not only out of sight.
        assert sum(state.num_rows for state in worker.states.values()) == model.live(now_ms)


def test_expired_at_the_very_millisecond() -> None:
    definition = define(Expiring(), SCHEMA, ["k"], "k long, text string", "processingtime")
    worker = Service(definition).with_types(SCHEMA)
    worker.batch([(1, "set", 1)], now_ms=100)
    assert worker.batch([(1, "look", 1)], now_ms=109)[0]["text"] == "((1,), [], [])"
    assert worker.batch([(1, "look", 1)], now_ms=110)[0]["text"] == "(None, [], [])"
    assert worker.stats.rows_removed == 1
