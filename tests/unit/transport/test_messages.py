"""Every message survives its way between processes; whatever else comes is refused."""

from __future__ import annotations

import dataclasses
import json
import time
import types
from enum import Enum
from types import ModuleType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.epochs import TransactionReport
from anabranch.protocol.move_orders import OrderKind
from anabranch.transport.codec import decode, encode
from anabranch.transport.messages import control, deaths, hosts, kinds, lanes, orders, state
from anabranch.transport.messages.kinds import Call, Stream, reply_type
from anabranch.transport.messages.names import NAMES, Request, StreamRequest, type_of

MODULES: list[ModuleType] = [kinds, lanes, control, orders, state, deaths, hosts]
MESSAGES: list[Any] = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
]
NAMED = pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)


def some(kind: Any, number: int) -> Any:
    """A value of a type; another one for each number, None where that is allowed for odd ones."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    inner = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return None if number % 2 else some(inner[0], number)
    if get_origin(kind) is tuple:
        return tuple(some(inner[0], n) for n in range(number))
    if get_origin(kind) is dict:
        return {some(inner[0], n): some(inner[1], n) for n in range(number)}
    if dataclasses.is_dataclass(kind):
        return make(kind, number)
    if issubclass(kind, Enum):
        return list(kind)[number % len(list(kind))]
    values = {int: 7 + number, str: f"text {number}", bool: bool(number % 2), float: 0.5 + number}
    return bytes([10, 34, number]) if kind is bytes else values[kind]


def make(kind: Any, number: int = 2) -> Any:
    """A message."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(*(some(hints[name], number + at) for at, name in enumerate(names)))


@NAMED
@pytest.mark.parametrize("number", range(4))
def test_round_trip(kind: Any, number: int) -> None:
    message = make(kind, number)
    again = decode(kind, encode(message))
    assert again == message
    assert type(again) is kind


@NAMED
def test_messages_are_values(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)
    assert not hasattr(make(kind), "__dict__")


def raw(message: object) -> tuple[dict[str, Any], bytes]:
    head, line_end, content = encode(message).partition(b"\n")
    fields: dict[str, Any] = json.loads(head)
    return fields, line_end + content


@NAMED
def test_other_fields_are_refused(kind: Any) -> None:
    fields, content = raw(make(kind))
    with pytest.raises(AnabranchError, match=f"'{kind.__name__}'.*'other' is not known.*versions"):
        decode(kind, json.dumps({**fields, "other": 1}).encode() + content)
    for name in fields:
        less = {key: value for key, value in fields.items() if key != name}
        with pytest.raises(AnabranchError, match=f"'{kind.__name__}'.*'{name}' is missing.*versi"):
            decode(kind, json.dumps(less).encode() + content)


@NAMED
def test_values_of_other_types_are_refused(kind: Any) -> None:
    fields, content = raw(make(kind))
    for name in fields:
        value: Any
        for value in ({"": [{}]}, [[None]], "no such thing"):
            if isinstance(fields[name], str | None) and isinstance(value, str):
                continue  # it may be text
            changed = json.dumps({**fields, name: value}).encode() + content
            with pytest.raises(AnabranchError, match=r"cannot be read.*versions"):
                decode(kind, changed)


BEGIN = lanes.Begin("counts", 1, "q", Epoch(5), Lane(0), 2, 9, False)


@pytest.mark.parametrize(
    ("field", "value"),
    [("epoch", "5"), ("epoch", 5.0), ("epoch", True), ("epoch", None), ("is_retry", 0)],
)
def test_the_error_says_which_field_it_is(field: str, value: Any) -> None:
    fields, _ = raw(BEGIN)
    with pytest.raises(AnabranchError, match=rf"'Begin'.*'{field}' cannot be {value!r}.*versions"):
        decode(lanes.Begin, json.dumps({**fields, field: value}).encode())


def test_inner_messages_name_themselves() -> None:
    report = TransactionReport("w1", (1, 2), None)
    done = lanes.TransactionDone(report, {"rows": 1})
    finish = lanes.Finish("counts", 1, Epoch(1), Lane(0), 1, (done,), {})
    fields, _ = raw(finish)
    fields["transactions"][0]["report"]["groups"] = [1, "2"]
    with pytest.raises(AnabranchError, match=r"'TransactionReport'.*'groups' cannot be"):
        decode(lanes.Finish, json.dumps(fields).encode())
    fields["transactions"][0]["stats"]["rows"] = 1.5
    fields["transactions"][0]["report"]["groups"] = []
    with pytest.raises(AnabranchError, match=r"'TransactionDone'.*'stats' cannot be"):
        decode(lanes.Finish, json.dumps(fields).encode())


def test_unknown_values_of_enums_and_keys_of_dicts() -> None:
    fields, _ = raw(orders.GrantOrder((KeyGroup(1),), None, 1))
    with pytest.raises(AnabranchError, match=r"'GrantOrder'.*'arrival' cannot be 'later'"):
        decode(orders.GrantOrder, json.dumps({**fields, "arrival": "later"}).encode())
    with pytest.raises(AnabranchError, match=r"'GroupHeat'.*'bytes' cannot be"):
        decode(state.GroupHeat, b'{"rows":{},"bytes":{"one":1}}')


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff", b"null"])
def test_what_is_no_message(data: bytes) -> None:
    for kind in (lanes.Finish, control.Install):
        with pytest.raises(AnabranchError, match=f"'{kind.__name__}' cannot be read"):
            decode(kind, data)


def test_what_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="cannot be a part of a message"):
        encode(state.AsOf(object(), ()))  # type: ignore[arg-type]


@dataclasses.dataclass
class Sets:
    values: set[int]


@dataclasses.dataclass
class BytesFirst:
    content: bytes
    name: str


@dataclasses.dataclass
class OddKeys:
    values: dict[float, int]


@pytest.mark.parametrize("kind", [Sets, BytesFirst, OddKeys])
def test_types_that_the_codec_does_not_know(kind: type) -> None:
    with pytest.raises(TypeError):
        decode(kind, b"{}")


def test_ids_are_plain_values() -> None:
    fields, _ = raw(control.Ping(WorkerId("w1")))
    assert fields == {"caller": "w1"}


# --- names --------------------------------------------------------------------------------------


def test_every_request_and_head_has_a_name_of_its_own() -> None:
    requests = {kind for kind in MESSAGES if issubclass(kind, Call | Stream)}
    heads = {*get_args(state.GroupHead), state.FoundHead}
    heads |= {*get_args(hosts.OrderHead), *get_args(deaths.WatchHead), kinds.AnswerHead}
    assert set(NAMES) == requests | heads
    assert len(set(NAMES.values())) == len(NAMES)
    assert set(get_args(Request)) == {kind for kind in requests if issubclass(kind, Call)}
    assert set(get_args(StreamRequest)) == {kind for kind in requests if issubclass(kind, Stream)}
    for kind, name in NAMES.items():
        assert type_of(name) is kind


def test_every_order_is_named_as_in_the_protocol() -> None:
    names = {NAMES[kind] for kind in get_args(orders.Order)}
    assert names == {kind.value for kind in OrderKind}


def test_every_reply_is_a_message() -> None:
    for kind in MESSAGES:
        if issubclass(kind, Call):
            assert reply_type(kind) in MESSAGES


def test_names_of_another_kind_are_refused() -> None:
    for name, base in (("slice", Call), ("fetch", Call), ("begin", Stream), ("pace", Call)):
        with pytest.raises(AnabranchError, match=f"Unknown call '{name}'.*versions"):
            type_of(name, base)


# --- speed --------------------------------------------------------------------------------------


def test_a_finish_costs_little() -> None:
    """It is on the path of every batch: about 130 microseconds on one busy core of 2026."""
    stats = dict.fromkeys(("rows_updated", "rows_removed", "timers_fired", "apply_ms"), 3)
    done = tuple(
        lanes.TransactionDone(
            TransactionReport("w1", tuple(range(n, 320, 20)), "c" * 100), {**stats, "rows": n}
        )
        for n in range(20)
    )
    finish = lanes.Finish("counts", 1, Epoch(7), Lane(1), 4, done, stats)
    assert len(done[0].report.groups) == 16
    seconds = []
    for _ in range(200):
        started = time.perf_counter()
        assert decode(lanes.Finish, encode(finish)) is not finish
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 1e-3
