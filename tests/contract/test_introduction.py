"""An agent with nothing but a token comes to trust the right coordinator, and no other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.coordinator.service_access import ServiceAccess
from anabranch.errors import AccessRefused, ServiceUnavailable
from anabranch.model.ids import AgentId
from anabranch.transport import introduction
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer
from anabranch.transport.introduction import STRANGER, introduced
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.hosts import Introduce, Report, ReportKind
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.server import Server

REPORT = Report(AgentId("a1"), 1, ReportKind.ENDED)


class Coordinator:
    """The part of it that agents meet."""

    def __init__(self, tls: bool) -> None:
        self.access = ServiceAccess(["127.0.0.1"], tls)
        self.server = Server("127.0.0.1", self.access.known, self, self.access.certificate)
        self.address = self.server.address

    def call(self, request: Any) -> object:
        return self.access.introduce(request) if isinstance(request, Introduce) else Nothing()

    def exchange(self, header: Any, rows: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator(True)
    yield coordinator
    coordinator.server.stop()


@pytest.fixture
def plain() -> Iterator[Coordinator]:
    coordinator = Coordinator(False)
    yield coordinator
    coordinator.server.stop()


def report(address: str, credentials: Credentials) -> None:
    Peer(address, credentials, "The coordinator").call(REPORT, 10)


def test_the_token_is_enough(coordinator: Coordinator) -> None:
    given = coordinator.access.join("a token in a file")
    found = introduced(coordinator.address, "a token in a file")
    assert found == given
    assert found.certificates is not None
    report(coordinator.address, found)


def test_one_that_does_not_know_the_token_learns_and_gets_nothing(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody in between answers every question with an authority of his own."""
    coordinator.access.join("his")

    def answer(asked: Introduce) -> object:
        assert "ours" not in str(asked)
        return introduction.introduction_of("his", asked, b"his authority")

    monkeypatch.setattr(coordinator.access, "introduce", answer)
    with pytest.raises(AccessRefused, match=r"does not know the token.*was not told"):
        introduced(coordinator.address, "ours")


def test_an_earlier_answer_does_not_serve_again(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.access.join("ours")
    real, first = coordinator.access.introduce, list[Any]()

    def answer(asked: Introduce) -> object:
        first.append(real(asked))
        return first[0]

    monkeypatch.setattr(coordinator.access, "introduce", answer)
    introduced(coordinator.address, "ours")
    with pytest.raises(AccessRefused, match="does not know the token"):
        introduced(coordinator.address, "ours")


def test_a_token_of_another_service(coordinator: Coordinator) -> None:
    with pytest.raises(AccessRefused, match="token"):  # nobody can join there
        introduced(coordinator.address, "ours")
    coordinator.access.join("another")
    with pytest.raises(AccessRefused, match="another service, or was revoked"):
        introduced(coordinator.address, "ours")


def test_revoked_and_made_again(coordinator: Coordinator) -> None:
    first = coordinator.access.join()
    report(coordinator.address, first)
    coordinator.access.revoke_join_tokens()
    with pytest.raises(AccessRefused):
        report(coordinator.address, first)
    with pytest.raises(AccessRefused, match="revoked"):
        introduced(coordinator.address, first.token)
    second = coordinator.access.join()
    report(coordinator.address, introduced(coordinator.address, second.token))
    with pytest.raises(AccessRefused):
        report(coordinator.address, first)


def test_strangers_may_ask_nothing_else(coordinator: Coordinator) -> None:
    trusted = coordinator.access.join().certificates
    with pytest.raises(AccessRefused, match="service's own token"):
        Peer(coordinator.address, Credentials(STRANGER, trusted), "It").call(Ping(), 10)


def test_without_encryption_on_loopback(plain: Coordinator) -> None:
    plain.access.join("ours")
    found = introduced(plain.address, "ours")
    assert found == Credentials("ours", None)
    report(plain.address, found)


def test_the_token_is_never_sent_in_the_clear_beyond_loopback(
    plain: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.access.join("ours")
    monkeypatch.setattr(introduction, "is_loopback", lambda host: False)
    with pytest.raises(AccessRefused, match="does not speak TLS"):
        introduced(plain.address, "ours")
    assert introduced(plain.address, "ours", tls=False).certificates is None


def test_nobody_there() -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        with pytest.raises(ServiceUnavailable, match="cannot be reached") as raised:
            introduced(f"127.0.0.1:{dead.getsockname()[1]}", "ours", tls=True)
        assert not isinstance(raised.value, AccessRefused)
