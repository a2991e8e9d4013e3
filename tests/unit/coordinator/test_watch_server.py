"""Whoever watches hears of the recent past, then of everything, and signs of life between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.coordinator import watch_server
from anabranch.coordinator.watch_server import WatchServer
from anabranch.errors import NotReachable
from anabranch.transport.in_flight import IN_FLIGHT
from anabranch.transport.messages.deaths import DeathsHead, WatchDeaths
from anabranch.transport.messages.kinds import AliveHead

TOKEN = "token"


@pytest.fixture(autouse=True)
def brief_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "SIGN_SECONDS", 0.05)


def heads(server: WatchServer) -> Iterator[object]:
    return (head for head, _ in server.stream(WatchDeaths("a test")))


def test_the_first_head_is_the_recent_past() -> None:
    server = WatchServer(TOKEN)
    assert next(heads(server)) == DeathsHead(())
    server.gone("a:1", "b:1")
    server.gone("c:1")
    assert next(heads(server)) == DeathsHead(("a:1", "b:1", "c:1"))
    server.here("b:1")
    server.here("never:1")
    server.here(None)
    assert next(heads(server)) == DeathsHead(("a:1", "b:1", "c:1"), ("b:1",))


def test_news_come_to_everybody_once() -> None:
    server = WatchServer(TOKEN)
    one, other = heads(server), heads(server)
    assert next(one) == next(other) == DeathsHead(())
    server.gone("a:1")
    assert next(one) == DeathsHead(("a:1",))
    server.gone("b:1")
    assert next(one) == DeathsHead(("b:1",))
    assert next(one) == AliveHead()
    assert next(other) == DeathsHead(("a:1", "b:1"))
    assert next(other) == AliveHead()
    server.close()
    assert list(one) == list(other) == []


def test_the_past_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    server = WatchServer(TOKEN)
    late = heads(server)
    next(late)
    server.gone("a:1")
    monkeypatch.setattr(watch_server, "GONE_SECONDS", 0.0)
    assert next(heads(server)) == DeathsHead(())
    server.gone("b:1")
    monkeypatch.setattr(watch_server, "GONE_SECONDS", 60.0)
    assert next(late) == DeathsHead(("b:1",))


def test_the_own_process_hears_it_first() -> None:
    server = WatchServer(TOKEN)
    server.gone("127.0.0.1:9")
    with pytest.raises(NotReachable, match="is gone"):
        IN_FLIGHT.check("127.0.0.1:9", "It", TOKEN)
    server.here("127.0.0.1:9")
    IN_FLIGHT.check("127.0.0.1:9", "It", TOKEN)
