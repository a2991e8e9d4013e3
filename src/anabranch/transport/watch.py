"""Hears from the coordinator which processes are gone, and ends what is under way to them."""

from __future__ import annotations

import logging
import os
import threading
import time

from anabranch.errors import AnabranchError
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer
from anabranch.transport.in_flight import IN_FLIGHT, MUTE_SECONDS
from anabranch.transport.messages.deaths import DeathsHead, WatchDeaths

_log = logging.getLogger("anabranch.transport")

AGAIN_SECONDS = 1.0
"""Between two tries to open the stream."""

UNUSED_SECONDS = 60.0
"""A process without lanes for so long stops watching."""

_watches: dict[str, Watch] = {}
_watches_lock = threading.Lock()


class Watch:
    """The watch stream of this process, on a thread of its own, opened again when it breaks.

    Without it calls end too, only later: what is in flight looks after its own silence.
    """

    def __init__(self, coordinator: str, credentials: Credentials, caller: str) -> None:
        self._peer = Peer(coordinator, credentials, "The coordinator")
        self._token = credentials.token
        self._request = WatchDeaths(caller)
        self.coordinator = coordinator
        self.used_at = time.monotonic()
        self.is_for_ever = False

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._run, name="anabranch-watch", daemon=True).start()

    def _run(self) -> None:
        while self._is_wanted():
            try:
                for parcel in self._peer.stream(self._request, None, MUTE_SECONDS):
                    if isinstance(parcel.head, DeathsHead):
                        IN_FLIGHT.gone(self._token, *parcel.head.gone)
                        IN_FLIGHT.here(self._token, *parcel.head.here)
                    if not self._is_wanted():
                        return
            except AnabranchError as error:
                _log.debug("The watch stream broke: %s", error)
            except Exception:
                _log.exception("The watch stream broke")
            time.sleep(AGAIN_SECONDS)

    def _is_wanted(self) -> bool:
        with _watches_lock:
            if self.is_for_ever or time.monotonic() < self.used_at + UNUSED_SECONDS:
                return True
            if _watches.get(self.coordinator) is self:
                del _watches[self.coordinator]
            return False


def watch(coordinator: str, credentials: Credentials, caller: str) -> None:
    """Watch from now on, for as long as the process lives: for workers."""
    listening = Watch(coordinator, credentials, caller)
    listening.is_for_ever = True
    listening.start()


def watch_for_now(coordinator: str, credentials: Credentials) -> None:
    """Watch while lanes run in this process, and between them; cheap if it does already."""
    with _watches_lock:
        listening = _watches.get(coordinator)
        if listening is not None:
            listening.used_at = time.monotonic()
            return
        caller = f"lanes of process {os.getpid()}"
        listening = _watches[coordinator] = Watch(coordinator, credentials, caller)
    listening.start()
