"""The coordinator's workers as processes: started, watched, replaced, stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.model.ids import WorkerId
from anabranch.processes.launcher import Launcher, StartedWorker
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.client import Peer, forget
from anabranch.transport.messages.control import Ping

_log = logging.getLogger("anabranch.coordinator")

PING_SECONDS = 5.0
PING_SECONDS_MAX = 60.0
"""A worker that does not answer for so long is taken for dead and killed."""


@dataclass(slots=True)
class Member:
    """One running worker process."""

    incarnation: int
    handle: StartedWorker
    peer: Peer


class WorkerPool:
    """Runs worker processes; tells the coordinator through callbacks, from its own threads."""

    def __init__(
        self,
        launcher: Launcher,
        make_config: Callable[[WorkerId, int], WorkerConfig],
        on_started: Callable[[WorkerId, int], None],
        on_down: Callable[[WorkerId, int, str], None],
    ) -> None:
        self._launcher = launcher
        self._make_config = make_config
        self._on_started = on_started
        self._on_down = on_down
        self._members: dict[WorkerId, Member] = {}
        self._retired: set[tuple[WorkerId, int]] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._spawn(self._ping_all, "anabranch-ping")

    def start(self, worker: WorkerId, incarnation: int) -> None:
        """Start a process in the background."""
        self._spawn(lambda: self._start(worker, incarnation), f"anabranch-start-{worker}")

    def retire(self, worker: WorkerId, incarnation: int) -> None:
        """End a process that is not needed any more, in the background."""
        with self._lock:
            self._retired.add((worker, incarnation))
            member = self._members.get(worker)
            if member is None or member.incarnation != incarnation:
                return  # still starting: it ends as soon as it has
            del self._members[worker]
        self._spawn(lambda: self._end(member), f"anabranch-end-{worker}")

    def peers(self) -> dict[WorkerId, Peer]:
        """Workers whose process runs."""
        with self._lock:
            return {worker: member.peer for worker, member in self._members.items()}

    def address(self, worker: WorkerId, incarnation: int) -> str | None:
        """Where a worker listens; None if that incarnation is gone."""
        with self._lock:
            member = self._members.get(worker)
        if member is None or member.incarnation != incarnation:
            return None
        return member.peer.address

    def pids(self) -> dict[WorkerId, int]:
        """Process ids, for operators and tests."""
        with self._lock:
            return {worker: member.handle.pid for worker, member in self._members.items()}

    def stop(self) -> None:
        """End all workers and wait for them."""
        self._stopping.set()
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()
        with self._lock:
            members, self._members = self._members, {}
        stoppers = [threading.Thread(target=m.handle.stop) for m in members.values()]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        for member in members.values():
            forget(member.peer.address)
        self._launcher.close()

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _start(self, worker: WorkerId, incarnation: int) -> None:
        if self._stopping.is_set():
            return
        config = self._make_config(worker, incarnation)
        try:
            handle = self._launcher.start(
                config, lambda reason: self._ended(worker, incarnation, reason)
            )
        except (AnabranchError, OSError) as error:
            self._on_down(worker, incarnation, str(error))
            return
        peer = Peer(handle.address, config.token, f"Worker {worker}")
        member = Member(incarnation, handle, peer)
        with self._lock:
            is_retired = (worker, incarnation) in self._retired
            if not is_retired:
                self._members[worker] = member
        if is_retired:
            self._end(member)
            return
        _log.info("Worker %s has started: process %s", worker, handle.pid)
        self._on_started(worker, incarnation)

    @staticmethod
    def _end(member: Member) -> None:
        member.handle.stop()
        forget(member.peer.address)

    def _ended(self, worker: WorkerId, incarnation: int, reason: str) -> None:
        with self._lock:
            member = self._members.get(worker)
            if member is not None and member.incarnation == incarnation:
                del self._members[worker]
            is_retired = (worker, incarnation) in self._retired
        if member is not None and member.incarnation == incarnation:
            forget(member.peer.address)
        if self._stopping.is_set():
            return
        if is_retired:
            _log.info("Worker %s has left: %s", worker, reason)
        else:
            _log.warning("Worker %s: %s It is replaced.", worker, reason)
            self._on_down(worker, incarnation, reason)

    def _ping_all(self) -> None:
        while not self._stopping.wait(PING_SECONDS):
            with self._lock:
                members = dict(self._members)
            for worker, member in members.items():
                try:
                    member.peer.call(Ping(), timeout_seconds=PING_SECONDS_MAX)
                except ServiceUnavailable:
                    if not self._stopping.is_set() and self.pids().get(worker) == member.handle.pid:
                        _log.warning("Worker %s does not answer; it is killed.", worker)
                        member.handle.kill()
