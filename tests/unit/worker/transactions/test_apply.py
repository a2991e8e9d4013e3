"""A transaction that fails at its beginning takes nothing back but what it has begun."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest
from tests.integration.counting import OUTPUT, Counting
from tests.integration.harness import KEYSPACE, rows_of

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.model.keyspace import GROUP
from anabranch.processor.contract import BatchTimes
from anabranch.protocol.worker import TransactionOpened
from anabranch.state.channel import ChannelledState
from anabranch.transport.messages.lanes import TransactionHeader
from anabranch.worker.busy import BusyClock
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.transactions.apply import run_operator
from anabranch.worker.transactions.row_buffer import RowBuffer
from anabranch.worker.transactions.transaction import RunningTransaction

GROUPS = tuple(KeyGroup(group) for group in range(KEYSPACE.groups))
LIMIT = 1 << 20


def transaction(epoch: int) -> RunningTransaction:
    opened = TransactionOpened(
        tx=epoch,
        operator="counts",
        epoch=Epoch(epoch),
        base=Epoch(epoch - 1),
        lane=Lane(0),
        lanes=1,
        attempt=0,
        groups=GROUPS,
        version=1,
    )
    header = TransactionHeader(
        operator=opened.operator,
        definition=1,
        epoch=opened.epoch,
        base=opened.base,
        lane=opened.lane,
        lanes=opened.lanes,
        attempt=opened.attempt,
        groups=opened.groups,
        version=opened.version,
        times=BatchTimes(0, 0, 0),
    )
    rows = RowBuffer(GROUPS, KEYSPACE, LIMIT)
    rows.append(rows_of(range(100)))
    schema = pa.schema([pa.field(GROUP, pa.int32()), *OUTPUT])
    run = RunningTransaction(opened, header, rows, schema, LIMIT, BusyClock())
    run.groups = GROUPS
    return run


def test_only_what_has_begun_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = OperatorSlot.open("counts", 1, Counting(), KEYSPACE)
    slot.states = {group: slot.engine.create_group() for group in GROUPS}
    first = transaction(1)
    run_operator(slot, first)
    assert first.applied == GROUPS
    assert slot.views[GROUPS[-1]] == (0, 1)

    def full() -> None:
        raise ServiceUnavailable("No space left on the device.")

    broken = cast(ChannelledState, slot.states[GROUPS[3]])
    monkeypatch.setattr(broken.inner, "begin", full)
    second = transaction(2)
    with pytest.raises(ServiceUnavailable):
        run_operator(slot, second)
    # The worker undoes these: others would lose the first transaction.
    assert second.applied == GROUPS[:3]
    for group in second.applied:
        slot.states[group].undo()
    assert sum(state.num_rows for state in slot.states.values()) == 100
    assert slot.views[GROUPS[3]] == (0, 1)


def test_sizes_of_state_take_turns_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = OperatorSlot.open("counts", 1, Counting(), KEYSPACE)
    assert slot.size_of(GROUPS) == (0, 0)
    slot.states = {group: slot.engine.create_group() for group in GROUPS}
    assert slot.size_of(GROUPS) == (0, 0)
    run_operator(slot, transaction(1))
    counts = {group: state.num_rows for group, state in slot.states.items()}
    measured: list[int] = []

    def num_bytes(state: object) -> int:
        group = next(group for group, held in slot.states.items() if held is state)
        measured.append(group)
        return 10 * counts[group]

    monkeypatch.setattr(ChannelledState, "num_bytes", property(num_bytes))
    filled = [group for group in GROUPS if counts[group]]
    sizes = {slot.size_of(GROUPS) for _ in filled}
    # All of the same size: one is enough to tell of the others.
    assert sizes == {(100, 1000)}
    assert sorted(measured) == filled
    assert slot.size_of(filled[:1]) == (counts[filled[0]], 10 * counts[filled[0]])
