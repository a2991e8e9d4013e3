"""Channel state: rows that are deferred, logged instead of changes, moved and restored."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.rows.processors import Alarm, Collector
from tests.unit.processor.rows.support import MemoryTransaction, define, hash_keys

from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.processor.channel import ChannelEngine
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.contract import BatchTimes, OperatorEngine, RowChunk
from anabranch.state import channel as channel_state
from anabranch.state.channel import CHANNEL, ChannelledState, Waiting
from anabranch.state.contract import GroupState, Sections

KEYSPACE = KeySpace(groups=4, bins=4)
GROUPS = tuple(range(KEYSPACE.groups))
Open = Callable[[KeySpace], OperatorEngine]


def collector() -> Open:
    return define(Collector(), "k long, v long", ["k"], "k long, text string").open


def alarm() -> Open:
    schema = "k long, v long"
    return define(Alarm(3), schema, ["k"], "k long, n long, t long", "processingtime").open


class Latest(ColumnarProcessor):
    """Keeps a count and a text that seldom changes; an entry goes when its value is 13."""

    state_schema = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])

    def process(self, batch: KeyedBatch) -> Update:
        last = batch.reduce(np.maximum, "v")
        counts = np.bincount(batch.key_of_row(), minlength=len(last))
        n = batch.state.column("n").fill_null(0).to_numpy() + counts
        text = pa.array([f"text {value // 50}" * 3 for value in last.tolist()])
        return Update(
            state=pa.table({"n": n, "text": text}),
            drop=last == 13,
            output=batch.keys.append_column("n", pa.array(n)),
            output_keys=np.arange(len(last)),
        )


def latest() -> Open:
    keys = pa.schema([pa.field("k", pa.int64())])
    inputs = keys.append(pa.field("v", pa.int64()))
    return ColumnarDefinition(Latest(), keys, inputs, keys.append(pa.field("n", pa.int64()))).open


OPERATORS = {"collector": collector, "alarm": alarm, "latest": latest}


SCHEMA = pa.schema(
    [
        pa.field(HASH, pa.int64(), nullable=False),  # Spark knows that it is never null
        pa.field("k", pa.int64()),
        pa.field("v", pa.int64(), metadata={"from": "Spark"}),
    ]
)


def rows_of(chance: random.Random) -> pa.Table:
    keys = [chance.randrange(12) for _ in range(chance.randrange(8))]
    values = [chance.choice([1, 2, 3, 13, 99]) for _ in keys]
    return pa.table([hash_keys([(key,) for key in keys]), keys, values], schema=SCHEMA)


@dataclass
class Rig:
    """One worker with all key groups; remembers what was made durable."""

    engine: ChannelEngine
    states: dict[int, GroupState] = field(default_factory=dict)
    logs: list[Sections] = field(default_factory=list)
    outputs: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Epoch and row, in order."""

    def __post_init__(self) -> None:
        self.states = {group: self.engine.create_group() for group in GROUPS}

    def run(self, epoch: int, rows: pa.Table, deferred: tuple[int, ...] = ()) -> None:
        """One epoch; some key groups are deferred."""
        times = BatchTimes(1000 + epoch, 0, 0)
        for state in self.states.values():
            state.begin()
        changes: dict[str, list[Any]] = {}
        for groups, step in (
            (deferred, self.engine.defer),
            (tuple(g for g in GROUPS if g not in deferred), self.engine.apply),
        ):
            if not groups:
                continue
            wanted = np.isin(KEYSPACE.group_of(rows.column(HASH).to_numpy()), groups)
            chunk = RowChunk(groups, rows.filter(pa.array(wanted)))
            tx = MemoryTransaction(epoch, groups, times, [chunk] if chunk.rows.num_rows else [], [])
            step(tx, {group: self.states[group] for group in groups})
            for table in tx.outputs:
                found = table.drop_columns([GROUP]).to_pylist()
                self.outputs += [(epoch, row) for row in found]
            for name, parts in tx.changes.items():
                changes.setdefault(name, []).extend(parts)
        self.logs.append(
            {n: pa.concat_tables(parts, promote_options="default") for n, parts in changes.items()}
        )

    def restored(self, logs_rows: bool = False) -> Rig:
        """Another worker, from the changelogs alone."""
        other = Rig(ChannelEngine(self.engine.inner, KEYSPACE, logs_rows))
        for log in self.logs:
            for group in GROUPS:
                mine = {}
                for name, table in log.items():
                    mask = KEYSPACE.group_of(table.column(HASH).to_numpy()) == group
                    if mask.any():
                        mine[name] = table.filter(pa.array(mask))
                if mine:
                    other.states[group].replay(mine)
        other.logs = list(self.logs)
        other.outputs = list(self.outputs)
        return other

    def content(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for state in self.states.values():
            for name, table in state.export().items():
                found.setdefault(name, []).extend(map(repr, table.to_pylist()))
        return {name: sorted(entries) for name, entries in found.items()}

    def said(self) -> dict[Any, list[Any]]:
        """Outputs of each key, in their order."""
        said: dict[Any, list[Any]] = {}
        for _, row in self.outputs:
            said.setdefault(row["k"], []).append(row)
        return said


def rig(operator: str, logs_rows: bool = False) -> Rig:
    return Rig(ChannelEngine(OPERATORS[operator]()(KEYSPACE), KEYSPACE, logs_rows))


def batches(seed: int, count: int = 12) -> list[pa.Table]:
    chance = random.Random(seed)
    return [rows_of(chance) for _ in range(count)]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("seed", range(6))
def test_deferred_rows_give_the_same_results_later(operator: str, seed: int) -> None:
    chance = random.Random(seed)
    plain, late = rig(operator), rig(operator)
    given = batches(seed)
    for epoch, rows in enumerate(given):
        is_last = epoch == len(given) - 1
        some = tuple(g for g in GROUPS if not is_last and chance.random() < 0.4)
        plain.run(epoch, rows)
        late.run(epoch, rows, some)
    assert late.said() == plain.said()
    assert late.content() == plain.content()


@pytest.mark.parametrize("logs_rows", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("seed", range(3))
def test_every_checkpoint_is_a_consistent_cut(operator: str, seed: int, logs_rows: bool) -> None:
    """Restored from any epoch, also in another mode, the rest of the rows leads to the same end."""
    chance = random.Random(seed)
    plain, given = rig(operator), batches(seed)
    for epoch, rows in enumerate(given):
        plain.run(epoch, rows)
    late = rig(operator, logs_rows)
    for epoch, rows in enumerate(given[:-1]):
        some = tuple(g for g in GROUPS if chance.random() < 0.4)
        late.run(epoch, rows, some)
        other = late.restored(logs_rows=chance.random() < 0.5)
        for rest in range(epoch + 1, len(given)):
            other.run(rest, given[rest])
        assert other.said() == plain.said()
        assert other.content() == plain.content()
        # And what was restored can be restored again.
        again = other.restored()
        again.run(len(given), rows_of(random.Random(0)))
        plain_again = plain.restored()
        plain_again.run(len(given), rows_of(random.Random(0)))
        assert again.content() == plain_again.content()


def test_an_undo_brings_waiting_rows_back() -> None:
    worker = rig("collector")
    worker.run(0, rows_of(random.Random(1)), GROUPS)
    before = worker.content()
    assert before[CHANNEL]
    worker.run(1, rows_of(random.Random(2)))
    assert CHANNEL not in worker.content()
    for state in worker.states.values():
        state.undo()
    assert worker.content() == before


def test_waiting_rows_move_with_their_bin() -> None:
    worker = rig("collector")
    worker.run(0, rows_of(random.Random(1)))
    worker.run(1, rows_of(random.Random(2)), GROUPS)
    for group, state in worker.states.items():
        other = worker.engine.create_group()
        for bins in ([2, 3], [0, 1]):
            other.begin()
            other.install(state.export_packed(bins))
            other.undo()  # what is installed stays
        assert isinstance(other, ChannelledState)
        assert isinstance(state, ChannelledState)
        assert len(other.waiting) == len(state.waiting) == 1
        assert other.waiting[0].rows.equals(state.waiting[0].rows)
        assert other.num_rows == state.num_rows
        worker.states[group] = other
        state.discard([0])
        assert not state.waiting
    worker.run(2, rows_of(random.Random(3)))
    plain = rig("collector")
    for epoch in range(3):
        plain.run(epoch, rows_of(random.Random(epoch + 1)))
    assert worker.said() == plain.said()


@pytest.mark.parametrize("is_first", [True, False], ids=["deferral first", "import first"])
def test_rows_are_deferred_while_an_import_installs_others(
    monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """A transaction that puts rows aside has no lock of the operator; whoever installs has it.

    Each reads what waits and writes more: one must not take back what the other has added.
    """
    before = Rig(ChannelEngine(latest()(KEYSPACE), KEYSPACE))
    chance = random.Random(7)
    for epoch in (0, 1):
        before.run(epoch, rows_of(chance), deferred=GROUPS)
    brought = {group: before.states[group].export() for group in GROUPS}
    rig = Rig(ChannelEngine(latest()(KEYSPACE), KEYSPACE))
    group = 0
    state = rig.states[group]
    assert isinstance(state, ChannelledState)
    some = Waiting(group, 2, (2, 0, 0), brought[group][CHANNEL].slice(0, 0))
    decode = channel_state._changed
    beside: list[threading.Thread] = []

    def in_the_middle(waiting: Any, entries: Any) -> Any:
        found = decode(waiting, entries)
        if not beside:
            beside.append(threading.Thread(target=state.defer, args=(some,)))
            beside[0].start()
            beside[0].join(0.3)  # without a lock it is done by now
        return found

    if is_first:
        state.defer(some)
        state.install(brought[group])
    else:
        monkeypatch.setattr(channel_state, "_changed", in_the_middle)
        state.install(brought[group])
        beside[0].join()
    assert [waiting.epoch for waiting in state.waiting] == [0, 1, 2]
    state.undo()
    assert [waiting.epoch for waiting in state.waiting] == [0, 1], "only the deferral is undone"
