"""What listens, and what does not."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.http.scripted import ScriptedService

from anabranch.durability.store import StateStore
from anabranch.errors import InvalidArgument
from anabranch.http.control_plane import ControlPlane

LISTEN = "0A"
"""A state in /proc/net/tcp."""


def listening() -> set[str]:
    """Sockets of this process on which it listens, by their inodes."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:  # that of the listing itself
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and f"socket:[{fields[9]}]" in own:
                found.add(fields[9])
    return found


def serving_threads() -> set[threading.Thread]:
    """Of servers; one of another test may be about to end."""
    return {thread for thread in threading.enumerate() if thread.name == "anabranch-http"}


@contextmanager
def started(folder: Path, http: bool | int | None) -> Iterator[ControlPlane]:
    service = ScriptedService()
    with StateStore(str(folder)) as store:
        control = ControlPlane(store)
        try:
            control.start(service, http, 2, 8, "changelog")
            yield control
        finally:
            control.stop()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc, which Linux has")
def test_nothing_listens_unless_it_may(tmp_path: Path, runtime: Path) -> None:
    before, threads = listening(), serving_threads()
    with socket.create_server(("127.0.0.1", 0)):
        assert len(listening()) == len(before) + 1  # the test sees what listens
    with started(tmp_path / "state", False) as control:
        assert listening() == before
        assert serving_threads() <= threads
        assert not (tmp_path / "state" / "endpoint.json").exists()
        assert not runtime.exists()
        with pytest.raises(InvalidArgument, match="no HTTP API"):
            _ = control.url
    with started(tmp_path / "other", True) as control:
        assert len(listening()) == len(before) + 1
        assert control.url.startswith("http://127.0.0.1:")
    assert listening() == before


def test_a_port_of_ones_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with started(tmp_path / "state", port) as control:
        assert f":{port}/" in control.url
