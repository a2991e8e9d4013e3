"""Parts of a key group: export by hashes, what is due, installs that an undo keeps."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from tests.unit.processor.rows.processors import Alarm, Collector, Fading
from tests.unit.processor.rows.support import Service, define

from anabranch.model.keyspace import HASH
from anabranch.processor.contract import BatchTimes
from anabranch.state.rocksdb.rows import StoredRows
from anabranch.state.rows.expiry import ExpiryIndex
from anabranch.state.rows.group import RowGroupState


def collector() -> Service:
    schema = "k long, v long"
    definition = define(Collector(), schema, ["k"], "k long, text string")
    return Service(definition, groups=1, bins=4).with_types(schema)


def entries(sections: dict[str, Any]) -> list[str]:
    return sorted(
        repr((name, row)) for name, table in sections.items() for row in table.to_pylist()
    )


def hashes(sections: dict[str, Any]) -> set[int]:
    return {h for table in sections.values() for h in table.column(HASH).to_pylist()}


def test_export_by_hashes_and_the_rest() -> None:
    service = collector()
    service.batch([(k, v) for k in range(40) for v in (1, 2, k)])
    state = service.states[0]
    whole = state.export()
    wanted = np.array([*sorted(hashes(whole))[::3], 12345], np.int64)
    some = state.export(hashes=wanted)
    assert hashes(some) == set(wanted.tolist()) - {12345}
    bins = service.keyspace.bin_of(some["last"].column(HASH).to_numpy())
    assert (np.diff(bins) >= 0).all(), "entries are ordered by bin"
    rest = {
        name: table.filter(pa.array(~np.isin(table.column(HASH).to_numpy(), wanted)))
        for name, table in whole.items()
    }
    other = service.engine.create_group()
    other.install(some)
    other.install(rest)
    assert entries(other.export()) == entries(whole)
    assert other.num_rows == state.num_rows


def test_what_is_installed_while_a_transaction_runs_survives_its_undo() -> None:
    service = collector()
    service.batch([(k, v) for k in range(40) for v in (1, 2, k)])
    state = service.states[0]
    whole = state.export()
    here, missing = state.export([0, 1]), state.export([2, 3])
    other = collector()
    target = other.states[0]
    target.install(here)
    keys = here["last"].column("key.k").to_pylist()
    other.batch([(k, 5) for k in keys])  # begin and apply
    target.install(missing)
    target.undo()
    assert entries(target.export()) == entries(whole)
    assert target.num_rows == state.num_rows
    outputs = other.batch([(k, 5) for k in range(40)])
    assert outputs == service.batch([(k, 5) for k in range(40)])


def test_due_timers_by_time_mode() -> None:
    for mode, event_time in (("processingtime", False), ("eventtime", True)):
        schema = "k long, v long"
        definition = define(
            Alarm(delay=10, event_time=event_time), schema, ["k"], "k long, c long", mode
        )
        service = Service(definition, groups=1, bins=4).with_types(schema)
        service.batch([(k, 0) for k in range(10)], now_ms=100, watermark_ms=100)
        service.batch([(k, 0) for k in range(5, 12)], now_ms=105, watermark_ms=105)
        state = service.states[0]

        def due(
            at_ms: int, mode: str = mode, service: Service = service, state: Any = state
        ) -> list[int]:
            times = (at_ms, 0) if mode == "processingtime" else (0, at_ms)
            found = service.engine.due_hashes(state, BatchTimes(*times, 0))
            return cast("list[int]", found.tolist())

        before = entries(state.export())
        assert due(109) == []
        assert due(110) == sorted(service.hash([(k,) for k in range(10)]).tolist())
        assert due(115) == sorted(service.hash([(k,) for k in range(12)]).tolist())
        assert due(115) == due(115), "asking changes nothing"
        assert entries(state.export()) == before
        fired = service.batch([], now_ms=110, watermark_ms=110)
        assert sorted(row["k"] for row in fired) == list(range(10))
        assert due(110) == []
    timeless = define(Collector(), "k long, v long", ["k"], "k long, text string")
    engine = timeless.open(service.keyspace)
    assert len(engine.due_hashes(engine.create_group(), BatchTimes(10**9, 10**9, 0))) == 0


def test_what_leaves_takes_its_hints_with_it_and_brings_them_back() -> None:
    schema = "k long, v long"
    definition = define(Fading(), schema, ["k"], "k long, c long", "processingtime")
    service = Service(definition, groups=1, bins=4).with_types(schema)
    for at_ms in (100, 105):
        service.batch([(k, k % 3) for k in range(40)], now_ms=at_ms)
    state = cast(RowGroupState, service.states[0])
    if not isinstance(state, StoredRows):  # which may have them on disk
        assert state.num_bytes > sum(index.num_bytes for index in indexes(state)) > 0
    missing = state.export([2, 3])
    state.begin()
    state.discard([2, 3])
    here = set(state.export()["last"].column("key.k").to_pylist())
    assert 0 < len(here) < 40
    assert {item for index in indexes(state)[:3] for item in items(index)} <= here
    assert {key for key, _ in items(indexes(state)[3])} <= here
    state.discard([0, 1])
    assert state.num_bytes == 0
    assert not any(items(index) or index.num_bytes for index in indexes(state))
    # They come back with the entries: timers fire, TTL ends.
    state.install(missing)
    due = service.engine.due_hashes(state, BatchTimes(200, 0, 0)).tolist()
    assert set(due) == hashes(missing)
    fired = service.batch([], now_ms=112)
    assert [row["c"] for row in fired] == [2] * missing["last"].num_rows
    service.batch([], now_ms=154)  # the first elements of lists
    assert state.num_rows == 3 * missing["last"].num_rows
    service.batch([], now_ms=155)
    assert state.num_rows == 0


def indexes(state: RowGroupState) -> list[ExpiryIndex]:
    return [state.timers, *state.expiries.values()]


def items(index: ExpiryIndex) -> list[Any]:
    return [item for _, some in index.peek(2**62) for item in some]
