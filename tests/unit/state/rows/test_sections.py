"""Key-group state: undo, snapshots and changelogs bring back exactly what was there."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from tests.unit.processor.rows.support import Service, define

from anabranch.errors import StateMismatch
from anabranch.model.keyspace import HASH

SCHEMA = "k long, op string, x long"
NOW = st.integers(0, 3)
OPS = ("set", "clear", "append", "put", "drop", "mset", "mdel", "mclear", "timer", "untimer")
ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(OPS), st.integers(0, 3)), max_size=12)
BATCHES = st.lists(st.tuples(ROWS, NOW), min_size=1, max_size=6)


class Anything(StatefulProcessor):
    """Does to its state what the rows say."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "x long, t string", self.ttl_ms)
        self.items = handle.getListState("items", "x long", self.ttl_ms)
        self.map = handle.getMapState("map", "a long, b string", "x long", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            self.run(row.op, row.x)
        yield Row(k=key[0], text=repr(self.seen()))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        yield Row(k=key[0], text=f"timer {expiredTimerInfo.getExpiryTimeInMs()} {self.seen()}")

    def run(self, op: str, x: int) -> None:
        match op:
            case "set":
                self.value.update((x, None if x == 2 else "t"))
            case "clear":
                self.value.clear()
            case "append":
                self.items.appendValue((x,))
            case "put":
                self.items.put([(x,)] * (x + 1))
            case "drop":
                self.items.clear()
            case "mset":
                self.map.updateValue((x, "b"), (x,))
            case "mdel":
                self.map.removeKey((x, "b"))
            case "mclear":
                self.map.clear()
            case "timer":
                self.handle.registerTimer(1000 + x)
            case "untimer":
                self.handle.deleteTimer(1000 + x)

    def seen(self) -> Any:
        return (
            self.value.get(), list(self.items.get()), list(self.map.iterator()),
            self.value.exists(), self.items.exists(), self.map.exists(),
            list(self.handle.listTimers()),
        )  # fmt: skip


def service(ttl_ms: int | None) -> Service:
    definition = define(Anything(ttl_ms), SCHEMA, ["k"], "k long, text string", "processingtime")
    return Service(definition, groups=3, bins=2).with_types(SCHEMA)


def clock(number: int, step: int) -> int:
    return 998 + number * 2 + step


@pytest.mark.parametrize("ttl_ms", [None, 3])
@given(batches=BATCHES)
def test_undo_restore_and_replay(ttl_ms: int | None, batches: Any) -> None:
    worker = service(ttl_ms)
    replica = service(ttl_ms)
    for number, (rows, step) in enumerate(batches):
        now_ms = clock(number, step)
        before = worker.content()
        entries = [state.num_rows for state in worker.states.values()]
        first = worker.batch(rows, now_ms=now_ms)
        # Undo goes back; doing it again gives the same.
        for state in worker.states.values():
            state.undo()
        assert worker.content() == before
        assert [state.num_rows for state in worker.states.values()] == entries
        assert worker.batch(rows, now_ms=now_ms) == first
        # The changelog brings a replica to the same state.
        changes = split(worker, worker.changes[-1])
        for group, sections in changes.items():
            replica.states[group].replay(sections)
        assert replica.content() == worker.content()
        counts = [state.num_rows for state in worker.states.values()]
        assert [state.num_rows for state in replica.states.values()] == counts
        assert sum(counts) == sum(len(found) for found in worker.content().values())
        # So does a snapshot, and it goes on in the same way.
        restored = service(ttl_ms)
        for group, sections in worker.snapshot().items():
            restored.states[group].install(sections)
        assert restored.content() == worker.content()
        following = restored.batch([(1, "set", 1)], now_ms=now_ms + 2)
        assert copy_of(worker).batch([(1, "set", 1)], now_ms=now_ms + 2) == following


def copy_of(worker: Service) -> Service:
    """The live worker must not see the batch: restore a twin from replayed changelogs instead."""
    twin = Service(worker.definition, groups=3, bins=2).with_types(SCHEMA)
    for changes in worker.changes[1::2]:
        for group, sections in split(worker, changes).items():
            twin.states[group].replay(sections)
    return twin


def split(worker: Service, changes: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """A changelog by key group."""
    found: dict[int, dict[str, Any]] = {}
    for name, table in changes.items():
        groups = worker.keyspace.group_of(table.column(HASH).to_numpy())
        for group in set(groups.tolist()):
            found.setdefault(group, {})[name] = table.filter(groups == group)
    return found


@given(batches=BATCHES)
def test_bins_move_one_by_one(batches: Any) -> None:
    worker = service(None)
    for number, (rows, step) in enumerate(batches):
        worker.batch(rows, now_ms=clock(number, step))
    want = worker.content()
    moved = service(None)
    for group, state in worker.states.items():
        for bin_number in (1, 0):
            moved.states[group].install(state.export([bin_number]))
            state.discard([bin_number])
    assert moved.content() == want
    assert all(not found for found in worker.content().values())
    assert all(state.num_rows == 0 for state in worker.states.values())


def test_export_is_ordered_by_bin_and_keeps_its_types() -> None:
    worker = service(3)
    empty = worker.snapshot()[0]
    worker.batch([(k, op, 1) for k in range(50) for op in OPS[:6]], now_ms=1)
    for sections in worker.snapshot().values():
        for name, table in sections.items():
            bins = worker.keyspace.bin_of(table.column(HASH).to_numpy()).tolist()
            assert bins == sorted(bins)
            assert table.schema == empty[name].schema
    for name, table in worker.changes[-1].items():
        fields = [field for field in table.schema if field.name != "__op"]
        assert fields == list(empty[name].schema)


def test_a_growing_list_logs_only_what_is_new() -> None:
    worker = service(None)
    worker.batch([(1, "append", n) for n in range(100)])
    worker.batch([(1, "append", 5), (1, "append", 6)])
    assert worker.changes[-1]["items"].num_rows == 2
    worker.batch([(1, "put", 2)])
    assert worker.changes[-1]["items"].column("__op").to_pylist() == [1, 0, 0, 0]


def test_unchanged_state_logs_nothing() -> None:
    worker = service(None)
    worker.batch([(1, "clear", 1), (1, "mdel", 1), (1, "drop", 1), (1, "untimer", 1)])
    assert worker.changes[-1] == {}
    worker.batch([(1, "mset", 1), (1, "mdel", 1), (1, "set", 1), (1, "clear", 1)])
    assert worker.changes[-1] == {}


def test_unknown_variables_are_refused_unless_deleted() -> None:
    worker = service(None)
    worker.batch([(1, "set", 1)])
    (sections,) = [found for found in worker.snapshot().values() if found["value"].num_rows]
    sections["old"] = sections.pop("value")
    fresh = service(None).states[0]
    with pytest.raises(StateMismatch, match="deleteIfExists"):
        fresh.install(sections)

    class Cleaning(Anything):
        def init(self, handle: Any) -> None:
            super().init(handle)
            handle.deleteIfExists("old")

    definition = define(Cleaning(None), SCHEMA, ["k"], "k long, text string", "processingtime")
    assert definition.description["deleted"] == ["old"]
    state = Service(definition).states[0]
    state.install(copy.copy(sections))
    assert state.num_rows == 0


def test_another_schema_is_refused() -> None:
    worker = service(None)
    worker.batch([(1, "set", 1)])
    (sections,) = [found for found in worker.snapshot().values() if found["value"].num_rows]
    with pytest.raises(StateMismatch, match="columns"):
        service(3).states[0].install(sections)
