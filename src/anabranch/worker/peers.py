"""The other workers, as far as moves need them: where they are, and calls to them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from anabranch.errors import ServiceUnavailable
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer, forget
from anabranch.transport.messages.kinds import Stream
from anabranch.transport.parcel import Parcel

H = TypeVar("H")


class Peers:
    """Addresses that came with orders; connections are there while something needs them."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._uses: Counter[str] = Counter()
        """Calls under way, by address."""
        self._idle: set[str] = set()
        """Addresses whose connection goes with the last call."""

    def remember(self, worker: str | None, address: str | None) -> None:
        """A worker is at this address now."""
        if worker is None or address is None:
            return
        with self._lock:
            self._idle.discard(address)
            known = self._peers.get(worker)
            if known is not None and known.address != address:  # another process
                self._idle.discard(known.address)
                forget(known.address)
            if known is None or known.address != address:
                self._peers[worker] = Peer(address, self._credentials, f"Worker {worker}")

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
                self._close_if_idle(peer.address)

    def stream(
        self, worker: str, request: Stream[H], timeout_seconds: float | None = None
    ) -> Generator[Parcel[H], None, None]:
        """A call whose reply comes in parcels."""
        with self.using(worker) as peer:
            yield from peer.stream(request, timeout_seconds)

    def disconnect(self, worker: str | None, used: Collection[str]) -> None:
        """Close the connection to a worker, now or after the calls that use it.

        Its address stays known: rows that come late for key groups that it owns are passed on.
        """
        if worker is None or worker in used:
            return
        with self._lock:
            peer = self._peers.get(worker)
            if peer is not None:
                self._idle.add(peer.address)
                self._close_if_idle(peer.address)

    def _close_if_idle(self, address: str) -> None:
        if not self._uses[address]:
            del self._uses[address]
            if address in self._idle:
                forget(address)
