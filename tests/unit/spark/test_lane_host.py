"""A lane knows the address of its host, without a packet to anybody."""

from __future__ import annotations

import socket

import pytest

from anabranch.spark.lane_host import host_names


def test_the_address_is_that_toward_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert host_names("grpc://127.0.0.1:4711") == ("127.0.0.1", socket.gethostname())
    assert host_names("grpc+tls://127.0.0.1:1") == ("127.0.0.1", socket.gethostname())
    assert host_names("127.0.0.1:4711")[0] == "127.0.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.9")
    assert host_names("grpc://127.0.0.1:4712")[0] == "127.0.0.9"
    assert host_names("no-such-host.invalid:1")[-1] == socket.gethostname()
