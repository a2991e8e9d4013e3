"""The other workers, as far as moves need them: where they are, and calls to them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager

import pyarrow as pa

from anabranch.errors import ServiceUnavailable
from anabranch.transport.client import Peer, forget
from anabranch.transport.wire import Message


class Peers:
    """Addresses that came with orders."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._uses: Counter[str] = Counter()
        """Calls under way, by address."""

    def remember(self, worker: str | None, address: str | None) -> None:
        """A worker is at this address now."""
        if worker is None or address is None:
            return
        with self._lock:
            known = self._peers.get(worker)
            if known is None or known.address != address:
                self._peers[worker] = Peer(address, self._token, f"Worker {worker}")

    def get(self, worker: str) -> Peer:
        """The worker, which may have gone away since."""
        with self._lock:
            peer = self._peers.get(worker)
        if peer is None:
            raise ServiceUnavailable(f"Worker {worker} is not known here.")
        return peer

    @contextmanager
    def using(self, worker: str) -> Iterator[Peer]:
        """The worker, whose connection stays open meanwhile."""
        peer = self.get(worker)
        with self._lock:
            self._uses[peer.address] += 1
        try:
            yield peer
        finally:
            with self._lock:
                self._uses[peer.address] -= 1

    def stream(
        self, worker: str, name: str, message: Message, timeout_seconds: float | None = None
    ) -> Generator[tuple[Message, dict[str, pa.Table]], None, None]:
        """A call whose reply comes in pieces."""
        with self.using(worker) as peer:
            yield from peer.stream(name, message, timeout_seconds)

    def forget(self, worker: str | None, used: Collection[str]) -> None:
        """Close the connection to a worker unless something still uses it."""
        if worker is None or worker in used:
            return
        with self._lock:
            peer = self._peers.get(worker)
            if peer is None or self._uses[peer.address]:
                return
            del self._peers[worker]
            del self._uses[peer.address]
        forget(peer.address)
