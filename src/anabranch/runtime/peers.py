"""The other workers, as far as moves need them: where they are, and calls to them."""

from __future__ import annotations

import threading
from collections.abc import Collection

from anabranch.errors import ServiceUnavailable
from anabranch.transport.client import Peer, forget


class Peers:
    """Addresses that came with orders."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}

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

    def forget(self, worker: str | None, used: Collection[str]) -> None:
        """Close the connection to a worker unless something still uses it."""
        if worker is None or worker in used:
            return
        with self._lock:
            peer = self._peers.pop(worker, None)
        if peer is not None:
            forget(peer.address)
