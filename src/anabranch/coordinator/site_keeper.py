"""Brings sites to where they belong when their hosts come, or come back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.move_request import MoveWish
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.planning import TargetLayout
from anabranch.coordinator.seating import Seating
from anabranch.durability.documents import seal, unseal
from anabranch.durability.names import SITES_FILE
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.processor.sites import Sites

_log = logging.getLogger("anabranch.moves")

LOOK_SECONDS = 1.0
STOP_SECONDS_MAX = 10.0

STEADY_SECONDS = 3.0
"""Hosts that come and go attract nothing until they have stayed for so long."""

RETRY_SECONDS = 30.0
"""After a move that did not bring a site to its host."""


class SiteKeeper:
    """Has a thread as soon as there are sites that may belong somewhere."""

    def __init__(self, coordinator: Coordinator, sites: Sites, store: StateStore) -> None:
        self._moves, self._store = coordinator.moves, store
        self._store_lock = coordinator.store_lock
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._moves.seating = Seating(sites, self._load(), self._save)
        registry = coordinator.hosts.registry
        self._moves.addresses = lambda: {h: known.address for h, known in registry.hosts().items()}
        if sites.names or self._moves.seating.placed:
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="anabranch-sites", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS_MAX)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Plain values about sites."""
        return self._moves.seating.describe(self._moves.plan(), self._moves.hosts())

    def _load(self) -> dict[str, str]:
        blobs = self._store.blobs
        if not blobs.exists(SITES_FILE):
            return {}
        try:
            content = blobs.read(SITES_FILE).to_pybytes()
            return dict(unseal(content, blobs.full_name(SITES_FILE))["placed"])
        except AnabranchError as error:
            _log.error("Sites must be placed again: %s", error)
            return {}

    def _save(self, placed: Mapping[str, str]) -> None:
        with self._store_lock:
            self._store.check_fence()
            self._store.blobs.write(SITES_FILE, seal({"placed": dict(placed)}))
        if self._thread is None:
            self._start()

    def _watch(self) -> None:
        seen: object = None
        since = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            now = self._moves.hosts()
            picture = dict(now.hosts), now.drained, dict(now.at)
            if picture != seen:
                seen, since = picture, time.monotonic()
            if time.monotonic() < since + STEADY_SECONDS or self._moves.is_moving:
                continue
            if not self._bring():
                since = time.monotonic() + RETRY_SECONDS

    def _bring(self) -> bool:
        """Move sites that are not where they belong and could be; False: that failed."""
        plan = self._moves.plan()
        target = self._moves.seating.seated(plan, self._moves.hosts())
        if (target.owners, target.workers) == (plan.owners, plan.workers):
            return True
        away = [site for site, about in self.describe().items() if not about["is_there"]]
        try:
            move = self._moves.ask(_if_nothing_moves, MoveWish("live", {}))
            _log.info("Sites move to where they belong: %s", ", ".join(away))
            while not move.wait(LOOK_SECONDS):
                if self._over.is_set():
                    break
        except AnabranchError as error:
            _log.info("Sites stay where they are for now (%s): %s", ", ".join(away), error)
            return False
        return True


def _if_nothing_moves(moves: MoveRunner) -> TargetLayout:
    """What is wanted already; what a user has asked for meanwhile brings the sites too."""
    if moves.is_moving:
        raise ServiceUnavailable("A move runs.")
    return moves.wanted()
