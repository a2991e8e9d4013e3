"""Who may call what: every call with every token, and tokens that come and go."""

from __future__ import annotations

import pytest

from anabranch.errors import AccessRefused
from anabranch.transport.access import ALLOWED, Access, Caller, Role, digest_of
from anabranch.transport.auth import Credentials, bearer, lane_token
from anabranch.transport.introduction import STRANGER
from anabranch.transport.messages import deaths, hosts, lanes, names
from anabranch.transport.messages.kinds import Call, Stream
from anabranch.transport.messages.lanes import TransactionHeader

JOIN = "join"
TOKENS = {
    Role.SERVICE: "secret",
    Role.LANE: lane_token("secret"),
    Role.AGENT: JOIN,
    Role.STRANGER: STRANGER,
}

CALLS: set[type] = {kind for kind in names.NAMES if issubclass(kind, Call | Stream)} | {
    TransactionHeader,
    hosts.Join,
    hosts.Prove,
    hosts.Beat,
    hosts.Report,
    hosts.Orders,
    deaths.WatchDeaths,
}

EXPECTED = {
    Role.LANE: {"Begin", "Finish", "LaneFailed", "TransactionHeader", "Ping", "WatchDeaths"},
    Role.AGENT: {"Join", "Prove", "Beat", "Report", "Leave", "Orders"},
    Role.STRANGER: {"Introduce"},
}
"""Whoever adds a call for lanes or agents writes it down here too."""


@pytest.fixture
def access() -> Access:
    access = Access("secret")
    access.admit(JOIN, Role.AGENT)
    access.admit(STRANGER, Role.STRANGER)
    return access


def caller(access: Access, token: str) -> Caller:
    return Caller(access, digest_of(bearer(token)))


def may(access: Access, token: str, call: type) -> bool:
    try:
        caller(access, token).require(call)
    except AccessRefused:
        return False
    return True


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("call", sorted(CALLS, key=lambda kind: str(kind)))
def test_every_call_with_every_token(access: Access, role: Role, call: type) -> None:
    expected = role is Role.SERVICE or call.__name__ in EXPECTED[role]
    assert may(access, TOKENS[role], call) == expected


def test_what_is_allowed_exists() -> None:
    assert {kind.__name__ for kinds in ALLOWED.values() for kind in kinds} == {
        name for expected in EXPECTED.values() for name in expected
    }
    assert all(kinds <= CALLS for kinds in ALLOWED.values())


@pytest.mark.parametrize("token", ["", "Secret", "secret ", "join ", lane_token("other")])
def test_other_tokens_may_nothing(access: Access, token: str) -> None:
    assert not any(may(access, token, call) for call in CALLS)


def test_a_revoked_token_may_nothing_and_a_new_one_can_be_made(access: Access) -> None:
    agent = caller(access, JOIN)
    agent.require(hosts.Beat)
    access.revoke(JOIN)
    with pytest.raises(AccessRefused, match="revoked"):
        agent.require(hosts.Beat)
    access.revoke(JOIN)  # twice is once
    access.admit("another", Role.AGENT)
    assert may(access, "another", hosts.Join)
    assert not may(access, JOIN, hosts.Join)


def test_the_message_says_whose_token_it_is(access: Access) -> None:
    with pytest.raises(AccessRefused, match=r"'Begin' needs the service's own token.*agents"):
        caller(access, JOIN).require(lanes.Begin)


def test_lanes_get_what_the_service_trusts_and_not_its_token() -> None:
    own = Credentials("secret", b"PEM")
    given = own.for_lanes()
    assert given.certificates == b"PEM"
    assert given.token == own.for_lanes().token
    assert "secret" not in given.token
    assert given.token not in repr(given)
