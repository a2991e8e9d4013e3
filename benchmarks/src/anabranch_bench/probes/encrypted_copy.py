"""The same bytes between two processes, plain and encrypted: what each copy costs both of them.

Run as a module it is the process that has the bytes. It takes no secrets on its command line.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.transport.access import Access
from anabranch.transport.auth import Credentials, new_token
from anabranch.transport.client import Peer, forget
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.state import CopyGroups, DoneHead
from anabranch.transport.server import Server
from anabranch.transport.signs_of_life import Item
from anabranch.transport.tls import make_authority
from anabranch_bench.probes.flight_copy import BATCH_BYTES, payload_batches

CALLS = 20
SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class CopyCost:
    """One copy, and some calls with a connection each."""

    bytes: int
    seconds: float
    server_cpu_seconds: float
    caller_cpu_seconds: float
    call_ms: float
    """Of connecting and one call, the mean of several."""


class _Holder:
    """Sends the same parcel again and again, as workers send slices of state."""

    def __init__(self, size: int) -> None:
        self._table = pa.Table.from_batches(payload_batches(BATCH_BYTES))
        self._parcels = max(1, size // self._table.nbytes)

    def call(self, request: object) -> Nothing:
        """Pings."""
        return Nothing()

    def exchange(self, header: object, rows: object) -> Any:
        """Nobody sends rows."""
        raise NotImplementedError

    def stream(self, request: object) -> Iterator[Item]:
        """All of it."""
        for number in range(self._parcels):
            yield DoneHead(number, 0, (), None), {"rows": self._table}


class CopySource:
    """The other process: listens with TLS and without."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        told = self._line()
        trusted = base64.b64decode(told["trusted"])
        self._peers = {
            "plain": Peer(told["plain"], Credentials(told["token"]), "The source"),
            "tls": Peer(told["tls"], Credentials(told["token"], trusted), "The source"),
        }

    def copy(self, kind: str) -> CopyCost:
        """All bytes once, over a new connection."""
        peer = self._peers[kind]
        forget(peer.address)
        server, caller, begun = self._cpu_seconds(), time.process_time(), time.monotonic()
        size = 0
        for parcel in peer.stream(CopyGroups("copy", 1, (), False), SECONDS_MAX):
            size += parcel.bytes
        seconds, caller = time.monotonic() - begun, time.process_time() - caller
        server = self._cpu_seconds() - server
        return CopyCost(size, seconds, server, caller, self._call_ms(peer))

    def _call_ms(self, peer: Peer) -> float:
        begun = time.monotonic()
        for _ in range(CALLS):
            forget(peer.address)
            peer.call(Ping(), SECONDS_MAX)
        return (time.monotonic() - begun) / CALLS * 1e3

    def _cpu_seconds(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AnabranchError("The process that has the bytes has ended at once.")
        return json.loads(line)


@contextmanager
def copy_source(size: int) -> Iterator[CopySource]:
    """A process with so many bytes."""
    command = [sys.executable, "-m", "anabranch_bench.probes.encrypted_copy", str(size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield CopySource(process)
    finally:
        process.kill()
        process.communicate()


def _serve(size: int) -> None:
    token, authority = new_token(), make_authority()
    access, holder = Access(token), _Holder(size)
    plain = Server("127.0.0.1", access, holder)
    tls = Server("127.0.0.1", access, holder, authority.certificate)
    trusted = base64.b64encode(authority.pem).decode()
    _tell({"plain": plain.address, "tls": tls.address, "token": token, "trusted": trusted})
    for _ in sys.stdin:
        _tell(time.process_time())


def _tell(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
