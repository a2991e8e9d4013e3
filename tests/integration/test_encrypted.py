"""Real worker processes with TLS: moves and lookups equal the oracle; secrets are nowhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.rig import Rig
from tests.integration.streaming import MovingCluster, Stream
from tests.processes import SESSION_MARK

from anabranch.errors import AccessRefused
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer
from anabranch.transport.messages.control import Ping, Status
from anabranch.transport.tls import make_authority

MOVED = (1, 2, 5, 6)


def kill(cluster: MovingCluster) -> None:
    os.kill(next(iter(cluster.coordinator.pids().values())), signal.SIGKILL)


@pytest.mark.parametrize("strategy", ["live", "drrs", "stop-restart"])
def test_a_service_under_load_is_rescaled(tmp_path: Path, strategy: str) -> None:
    with MovingCluster(tmp_path, tls=True) as cluster, Stream(cluster) as stream:
        stream.batches(3)
        assert cluster.rescale(3, strategy=strategy).wait(60)
        stream.batches(3)
        kill(cluster)
        stream.batches(2)
        assert cluster.rescale(2, strategy=strategy).wait(60)
        stream.batches(2)


def test_rows_are_forwarded_and_state_is_copied(tmp_path: Path) -> None:
    """Between workers: copies, deltas, fetches, and rows that reach a former owner."""
    authority = make_authority()
    credentials = Credentials("secret", authority.pem)
    with Rig(tmp_path, certificate=authority.certificate, credentials=credentials) as rig:
        rig.batch()
        before = dict(rig.routing)
        rig.order("w2", "copy", MOVED, "w1")
        rig.batch()
        rig.order("w2", "catch-up", MOVED, "w1")
        rig.flip(MOVED, "w2")
        rig.batch(before)  # lanes that have not heard of it
        assert rig.moves("w1")["rows_forwarded"] > 0
        rig.batch()
        rig.check_state()


def secrets_of(cluster: Any) -> dict[str, bytes]:
    access = cluster.coordinator.access
    key_lines = access.certificate.key.splitlines()
    return {
        "key": key_lines[1],
        "token": access.credentials.token.encode(),
        "lane token": cluster.coordinator.lane_credentials.token.encode(),
    }


def test_secrets_are_in_no_file_environment_command_or_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_LOG_LEVEL", "DEBUG")
    mark = f"{SESSION_MARK}={os.environ[SESSION_MARK]}".encode()
    with MovingCluster(tmp_path, tls=True) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        assert cluster.rescale(3).wait(60)
        kill(cluster)
        stream.batches(2)
        hidden = secrets_of(cluster)
        places = {
            f"file {path}": path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
        }
        looked = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in environment:
                looked += command.startswith(b"anabranch\0worker")
                places[f"environment of {command!r}"] = environment
                places[f"command {command!r}"] = command
        assert looked >= 3
        shown = f"{cluster.coordinator.access.credentials} {cluster.coordinator.status()}"
        places["status"] = shown.encode()
    said = capfd.readouterr()
    places["log"] = (said.out + said.err).encode()
    assert [
        (name, where) for where, text in places.items() for name, s in hidden.items() if s in text
    ] == []
    assert len(places) > 10


def test_what_listens_encrypts_and_asks_for_tokens(tmp_path: Path) -> None:
    with MovingCluster(tmp_path, tls=True) as cluster:
        access = cluster.coordinator.access
        lane = cluster.coordinator.lane_credentials
        cluster.run_batch(0, [1])
        peers = cluster.coordinator._pool.peers().values()
        for address in (cluster.coordinator.address, *(peer.address for peer in peers)):
            plain = Peer(address, Credentials(access.credentials.token), "It")
            with pytest.raises(AccessRefused, match="speaks TLS"):
                plain.call(Ping(), 10)
            with pytest.raises(AccessRefused, match="service's own token"):
                Peer(address, lane, "It").call(Status(), 10)
