"""Connections to other workers: there while something needs them; addresses stay known."""

from __future__ import annotations

import pytest

from anabranch.errors import ServiceUnavailable
from anabranch.transport import client
from anabranch.transport.auth import Credentials
from anabranch.worker.peers import Peers

ADDRESS = "127.0.0.1:1"
CREDENTIALS = Credentials("token")


@pytest.fixture
def peers() -> Peers:
    peers = Peers(CREDENTIALS)
    peers.remember("w2", ADDRESS)
    return peers


def is_connected() -> bool:
    return ADDRESS in client._connections


def test_unknown_workers() -> None:
    peers = Peers(CREDENTIALS)
    peers.remember("w2", None)
    with pytest.raises(ServiceUnavailable, match="w2 is not known"):
        peers.get("w2")
    peers.disconnect("w2", used=())


def test_a_connection_that_is_not_needed_any_more_is_closed(peers: Peers) -> None:
    with peers.using("w2") as peer:
        client._connection(peer.address, CREDENTIALS)
    assert is_connected(), "the move goes on"
    peers.disconnect("w2", used={"w2"})
    assert is_connected()
    peers.disconnect("w2", used={"w3"})
    assert not is_connected()


def test_it_is_closed_after_the_call_that_uses_it(peers: Peers) -> None:
    with peers.using("w2") as peer:
        client._connection(peer.address, CREDENTIALS)
        peers.disconnect("w2", used=())
        assert is_connected()
    assert not is_connected()


def test_rows_that_come_late_find_the_worker_and_leave_no_connection(peers: Peers) -> None:
    peers.disconnect("w2", used=())
    with peers.using("w2") as peer:
        client._connection(peer.address, CREDENTIALS)
        assert is_connected()
    assert not is_connected()


def test_the_next_move_keeps_it_again(peers: Peers) -> None:
    peers.disconnect("w2", used=())
    peers.remember("w2", ADDRESS)
    with peers.using("w2") as peer:
        client._connection(peer.address, CREDENTIALS)
    assert is_connected()
    peers.disconnect("w2", used=())
    assert not is_connected()
