"""What an agent shows when it joins."""

from __future__ import annotations

import os
import time
from pathlib import Path

from anabranch.model.ids import AgentId
from anabranch.processes.agent_proof import proof
from anabranch.transport.messages.hosts import JoinReply, Prove

A = AgentId("a")
PATH = "agents/run/nonce"


def reply(location: Path) -> JoinReply:
    return JoinReply(True, "", False, PATH, str(location), 1.0, 10.0, {})


def test_an_agent_gives_back_what_it_reads(tmp_path: Path) -> None:
    nonce = tmp_path / PATH
    nonce.parent.mkdir(parents=True)
    nonce.write_bytes(b"secret")
    assert proof(A, reply(tmp_path), "h1:1", ".") == Prove(
        A, "secret", "agents/run/a", "h1:1", None
    )
    assert (tmp_path / "agents/run/a").read_bytes() == b"secret"


def test_a_location_that_hangs_is_an_error(tmp_path: Path) -> None:
    """As a disk does whose server is gone: whoever opens a file there does not return."""
    nonce = tmp_path / PATH
    nonce.parent.mkdir(parents=True)
    os.mkfifo(nonce)
    began = time.monotonic()
    shown = proof(A, reply(tmp_path), "h1:1", "/data", seconds_max=0.3)
    assert time.monotonic() - began < 20
    assert shown.error == "It, or the local folder /data, has not answered for 0.3 s."
    with nonce.open("wb"):  # the thread that hangs goes on
        pass
