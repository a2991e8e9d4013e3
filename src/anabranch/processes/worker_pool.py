"""The coordinator's workers as processes: started, watched, replaced, stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.model.ids import HostId, WorkerId
from anabranch.processes.launcher import Launcher, StartedWorker
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.client import Peer, forget
from anabranch.transport.messages.control import SlowCalls, UserCall

_log = logging.getLogger("anabranch.coordinator")

PING_SECONDS = 5.0
PING_SECONDS_MAX = 60.0
"""A worker that does not answer for so long is taken for dead and killed."""

REPORTED_SECONDS = 1.0
"""Workers tell of calls of user code that take longer."""


@dataclass(slots=True)
class Member:
    """One running worker process."""

    incarnation: int
    handle: StartedWorker
    peer: Peer
    gone: threading.Event = field(default_factory=threading.Event)


def _nobody(address: str) -> None:
    """Nobody asks who is gone."""


def _ignore(worker: WorkerId, incarnation: int, calls: tuple[UserCall, ...]) -> None:
    """Nobody asks what user code does."""


class WorkerPool:
    """Runs worker processes; tells the coordinator through callbacks, from its own threads."""

    def __init__(
        self,
        launcher: Launcher,
        make_config: Callable[[WorkerId, int], WorkerConfig],
        on_started: Callable[[WorkerId, int], None],
        on_down: Callable[[WorkerId, int, str], None],
        on_user_calls: Callable[[WorkerId, int, tuple[UserCall, ...]], None] = _ignore,
        ping_seconds: float | None = None,
        on_gone: Callable[[str], None] = _nobody,
    ) -> None:
        """`on_user_calls` hears every few seconds what user code of a worker takes long.

        `on_gone` hears the address of each process that is gone.
        """
        self._launcher = launcher
        self._make_config = make_config
        self._on_started = on_started
        self._on_down = on_down
        self._on_user_calls = on_user_calls
        self._on_gone = on_gone
        self._ping_seconds = PING_SECONDS if ping_seconds is None else ping_seconds
        self._members: dict[WorkerId, Member] = {}
        self._retired: set[tuple[WorkerId, int]] = set()
        self._last_ended: dict[WorkerId, int] = {}
        """The newest incarnation of each worker that has ended: none before it comes back."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, worker: WorkerId, incarnation: int, host: HostId) -> None:
        """Start a process on a host, in the background."""
        self._spawn(lambda: self._start(worker, incarnation, host), f"anabranch-start-{worker}")

    def retire(self, worker: WorkerId, incarnation: int) -> None:
        """End a process that is not needed any more, in the background."""
        with self._lock:
            self._retired.add((worker, incarnation))
            member = self._members.get(worker)
            if member is None or member.incarnation != incarnation:
                return  # still starting: it ends as soon as it has
            del self._members[worker]
        self._spawn(lambda: self._end(member), f"anabranch-end-{worker}")

    def replace(self, worker: WorkerId, incarnation: int | None, why: str) -> bool:
        """Kill a process (None: whichever runs); its end is heard of as that of any other.

        False if there is no such process.
        """
        with self._lock:
            member = self._members.get(worker)
        if member is None or incarnation not in (None, member.incarnation):
            return False
        _log.warning("Worker %s is replaced: %s", worker, why)
        member.handle.kill()
        return True

    def peers(self) -> dict[WorkerId, Peer]:
        """Workers whose process runs."""
        with self._lock:
            return {worker: member.peer for worker, member in self._members.items()}

    def incarnations(self) -> dict[WorkerId, int]:
        """Which process of each worker runs."""
        with self._lock:
            return {worker: member.incarnation for worker, member in self._members.items()}

    def address(self, worker: WorkerId, incarnation: int) -> str | None:
        """Where a worker listens; None if that incarnation is gone."""
        with self._lock:
            member = self._members.get(worker)
        if member is None or member.incarnation != incarnation:
            return None
        return member.peer.address

    def hosts(self) -> dict[WorkerId, HostId]:
        """Where the processes are."""
        with self._lock:
            return {worker: member.handle.host for worker, member in self._members.items()}

    def pids(self) -> dict[WorkerId, int]:
        """Process ids, each on its host, for operators and tests."""
        with self._lock:
            return {worker: member.handle.pid for worker, member in self._members.items()}

    def stop(self) -> None:
        """End all workers and wait for them."""
        self._stopping.set()
        self._end_all()  # first: threads may wait for an answer of theirs
        while others := self._others():
            for thread in others:
                # no limit: each start, ping and end of a process has one
                thread.join()
        self._launcher.close()

    def _others(self) -> list[threading.Thread]:
        with self._lock:
            alive = [thread for thread in self._threads if thread.is_alive()]
        return [thread for thread in alive if thread is not threading.current_thread()]

    def _end_all(self) -> None:
        with self._lock:
            members, self._members = self._members, {}
        stoppers = [threading.Thread(target=self._end, args=(m,)) for m in members.values()]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()  # no limit: the end of a process has one

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        with self._lock:
            self._threads = [other for other in self._threads if other.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _start(self, worker: WorkerId, incarnation: int, host: HostId) -> None:
        if self._stopping.is_set():
            return
        try:
            config = self._make_config(worker, incarnation)
            handle = self._launcher.start(
                config, host, lambda reason: self._ended(worker, incarnation, reason)
            )
        except Exception as error:  # whatever it is: nobody else would say that it did not start
            if not isinstance(error, AnabranchError | OSError):
                _log.exception("Worker %s could not be started", worker)
            self._on_down(worker, incarnation, str(error) or type(error).__name__)
            return
        member = Member(
            incarnation, handle, Peer(handle.address, config.credentials, f"Worker {worker}")
        )
        if not self._admit(worker, member):
            self._end(member)
            return
        _log.info("Worker %s has started: process %s on host %s", worker, handle.pid, host)
        self._spawn(lambda: self._watch(worker, member), f"anabranch-ping-{worker}")
        try:
            self._on_started(worker, incarnation)
        except Exception:  # it would be "starting" for as long as it lives
            _log.exception("Worker %s could not be prepared and is killed", worker)
            handle.kill()

    def _admit(self, worker: WorkerId, member: Member) -> bool:
        """Whether a started process is wanted: it may have ended, or been replaced, meanwhile."""
        with self._lock:
            known, last_ended = self._members.get(worker), self._last_ended.get(worker, -1)
            is_late = known is not None and known.incarnation > member.incarnation
            is_retired = (worker, member.incarnation) in self._retired
            if self._stopping.is_set() or is_late or is_retired or member.incarnation <= last_ended:
                return False
            self._members[worker] = member
            return True

    def _end(self, member: Member) -> None:
        member.gone.set()
        member.handle.stop()
        self._forget(member)

    def _forget(self, member: Member) -> None:
        address = member.peer.address
        with self._lock:
            others = [other for other in self._members.values() if other is not member]
        # Its port is free before its end is heard of: a new process may listen there already.
        if all(other.peer.address != address for other in others):
            forget(address)
            self._on_gone(address)

    def _ended(self, worker: WorkerId, incarnation: int, reason: str) -> None:
        with self._lock:
            self._last_ended[worker] = max(incarnation, self._last_ended.get(worker, -1))
            member = self._members.get(worker)
            if member is not None and member.incarnation == incarnation:
                del self._members[worker]
            is_retired = (worker, incarnation) in self._retired
        if member is not None and member.incarnation == incarnation:
            member.gone.set()
            self._forget(member)
        if self._stopping.is_set():
            return
        if is_retired:
            _log.info("Worker %s has left: %s", worker, reason)
        else:
            _log.warning("Worker %s: %s It is replaced.", worker, reason)
            self._on_down(worker, incarnation, reason)

    def _watch(self, worker: WorkerId, member: Member) -> None:
        """Ask a process again and again whether it is there, and what its user code does."""
        while not member.gone.wait(self._ping_seconds):
            try:
                reply = member.peer.call(SlowCalls(REPORTED_SECONDS), PING_SECONDS_MAX)
                self._on_user_calls(worker, member.incarnation, reply.calls)
            except ServiceUnavailable:
                if not member.gone.is_set():
                    self._give_up(worker, member)
            except Exception:  # the next one may be heard
                _log.exception("Worker %s was not heard", worker)

    def _give_up(self, worker: WorkerId, member: Member) -> None:
        if self.incarnations().get(worker) != member.incarnation:
            return
        _log.warning(
            "Worker %s does not answer; it is killed. The stacks of its threads are on standard "
            "error: native code that keeps Python's lock looks like this.",
            worker,
        )
        member.handle.dump()
        member.handle.kill()
