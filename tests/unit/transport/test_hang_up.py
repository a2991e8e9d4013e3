"""Connections to one address end; all others go on."""

from __future__ import annotations

import socket
import sys

import pytest

from anabranch.transport.hang_up import hang_up

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def pair(family: socket.AddressFamily, host: str) -> tuple[str, socket.socket, socket.socket]:
    with socket.socket(socket.AF_INET) as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        port = door.getsockname()[1]
        near = socket.socket(family)
        near.settimeout(10)
        near.connect((host, port))
        far, _ = door.accept()
        far.settimeout(10)
    return f"127.0.0.1:{port}", near, far


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")]
)
def test_only_connections_to_the_address_end(family: socket.AddressFamily, host: str) -> None:
    address, near, far = pair(family, host)
    _, other_near, other_far = pair(family, host)
    with near, far, other_near, other_far:
        assert hang_up(address) == 1
        assert far.recv(1) == b"", "the other end hears of it"
        with pytest.raises(BrokenPipeError):
            near.send(b"x")
        other_near.send(b"y")
        assert other_far.recv(1) == b"y"


def test_nothing_is_connected_to_there() -> None:
    assert hang_up("127.0.0.1:9") == 0
