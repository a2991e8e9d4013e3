"""Tells all lanes and workers which processes are gone, as soon as the coordinator knows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from anabranch.transport.in_flight import GONE_SECONDS, IN_FLIGHT
from anabranch.transport.messages.deaths import DeathsHead, WatchDeaths
from anabranch.transport.messages.kinds import AliveHead
from anabranch.transport.signs_of_life import Item

SIGN_SECONDS = 5.0
"""There may be a thousand streams: not as often as for calls that somebody waits for."""


class WatchServer:
    """Serves the watch streams; what has happened is numbered, and each stream knows how far it is.

    A stream that breaks and comes again is told of the recent past anew.
    """

    def __init__(self, token: str) -> None:
        """`token`: that of the service."""
        self._token = token
        self._changed = threading.Condition()
        self._news: list[tuple[float, DeathsHead]] = []
        self._dropped = 0
        """News that are older than anybody needs."""
        self._is_closed = False

    def gone(self, *addresses: str) -> None:
        """Nobody is at these addresses any more; this process hears it first."""
        IN_FLIGHT.gone(self._token, *addresses)
        self._tell(DeathsHead(addresses))

    def here(self, address: str | None) -> None:
        """A process listens there; worth a word if another one did and is gone."""
        if address is None:
            return
        IN_FLIGHT.here(self._token, address)
        with self._changed:
            if any(address in head.gone for _, head in self._news):
                self._tell(DeathsHead((), (address,)))

    def stream(self, _: WatchDeaths) -> Iterator[Item]:
        """What has happened lately, and then everything as it happens."""
        seen, news = self._read(0)
        yield _joined(news), {}
        while True:
            if not self._wait(seen):
                return
            seen, news = self._read(seen)
            yield (_joined(news) if news else AliveHead()), {}

    def _wait(self, seen: int) -> bool:
        """Until there is news, or it is time for a sign of life; False: there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._last > seen, SIGN_SECONDS)
            return not self._is_closed

    def _read(self, seen: int) -> tuple[int, list[DeathsHead]]:
        with self._changed:
            self._forget()
            fresh = self._news[max(0, seen - self._dropped) :]
            return self._last, [head for _, head in fresh]

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def _last(self) -> int:
        return self._dropped + len(self._news)

    def _tell(self, head: DeathsHead) -> None:
        with self._changed:
            self._forget()
            self._news.append((time.monotonic(), head))
            self._changed.notify_all()

    def _forget(self) -> None:
        limit = time.monotonic() - GONE_SECONDS
        while self._news and self._news[0][0] < limit:
            del self._news[0]
            self._dropped += 1


def _joined(news: list[DeathsHead]) -> DeathsHead:
    """All that were gone, also those where a new process listens: calls to the old one end."""
    is_gone: dict[str, bool] = {}
    for head in news:
        is_gone.update(dict.fromkeys(head.gone, True))
        is_gone.update(dict.fromkeys(head.here, False))
    gone = dict.fromkeys(address for head in news for address in head.gone)
    return DeathsHead(tuple(gone), tuple(address for address in is_gone if not is_gone[address]))
