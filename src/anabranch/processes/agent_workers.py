"""The workers of an agent: started, watched and ended on the coordinator's orders."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.model.ids import AgentId, HostId, WorkerId
from anabranch.processes.launcher import Launcher, StartedWorker
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.messages.hosts import EndHead, EndKind, Report, ReportKind, StartHead

SEND_AGAIN_SECONDS = 0.2

END_SECONDS_MAX = 25.0
"""To stop and then to kill a process."""


@dataclass(slots=True)
class AgentProcess:
    """A worker process that was ordered."""

    worker: WorkerId
    handle: StartedWorker | None = None
    """None: it is being started."""
    is_unwanted: bool = False
    """It was told to end."""
    has_ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class AgentWorkers:
    """Obeys the orders of one agent; each is carried out in a thread of its own.

    An order may come twice: the coordinator repeats what it has heard nothing of.
    """

    def __init__(
        self,
        agent: AgentId,
        host: HostId,
        address: str,
        local_dir: str,
        launcher: Launcher,
        send: Callable[[Report], None],
    ) -> None:
        """`send` tells the coordinator, or raises; then it is asked again."""
        self._agent, self._host, self._address = agent, host, address
        self._local_dir = local_dir
        self._launcher = launcher
        self._send = send
        self._processes: dict[int, AgentProcess] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._reporter = _thread("reports", self._report_all)

    def running(self) -> tuple[WorkerId, ...]:
        """Workers whose process is there."""
        with self._lock:
            return tuple(p.worker for p in self._processes.values() if not p.has_ended)

    def start(self, order: StartHead) -> None:
        """Start a worker, in the background."""
        config = WorkerConfig.from_json(order.config)
        with self._lock:
            if self._is_over.is_set() or order.process in self._processes:
                return
            process = self._processes[order.process] = AgentProcess(WorkerId(config.worker))
        here = replace(config, host=self._address, local_dir=self._local_dir, is_remote=True)
        _thread(f"start-{config.worker}", lambda: self._start(order.process, process, here))

    def end(self, order: EndHead) -> None:
        """End a worker, in the background; one that is not there has ended.

        The order that starts it may yet come, and is void.
        """
        with self._lock:
            process = self._processes.get(order.process)
            if process is None and order.kind is not EndKind.DUMP:
                self._processes[order.process] = AgentProcess(WorkerId(""), has_ended=True)
        if process is None:
            self._tell(order.process, ReportKind.ENDED, reason="it is not there.")
        else:
            _thread(f"end-{process.worker}", lambda: _end(process, order.kind))

    def end_all(self, kind: EndKind) -> None:
        """End all at once, also those that are still being started; nothing is told any more."""
        self._is_over.set()
        self._reports.put(None)
        with self._lock:
            processes = list(self._processes.values())
        for thread in [_thread("end", partial(_end, process, kind)) for process in processes]:
            thread.join(END_SECONDS_MAX)
        self._reporter.join(END_SECONDS_MAX)

    def _start(self, number: int, process: AgentProcess, config: WorkerConfig) -> None:
        try:
            handle = self._launcher.start(
                config, self._host, lambda reason: self._ended(number, process, reason)
            )
        except Exception as error:  # whatever it is, the coordinator waits for it
            process.has_ended = True
            self._tell(number, ReportKind.FAILED, reason=str(error) or type(error).__name__)
            return
        with process.lock:
            process.handle = handle
            if not process.has_ended:
                self._tell(number, ReportKind.STARTED, handle.address, handle.pid)
        if process.is_unwanted or self._is_over.is_set():
            handle.kill()

    def _ended(self, number: int, process: AgentProcess, reason: str) -> None:
        with process.lock:
            process.has_ended = True
            self._tell(number, ReportKind.ENDED, reason=reason)

    def _tell(
        self,
        number: int,
        kind: ReportKind,
        address: str | None = None,
        pid: int | None = None,
        reason: str = "",
    ) -> None:
        self._reports.put(Report(self._agent, number, kind, address, pid, reason))

    def _report_all(self) -> None:
        """In their order: each until it has arrived."""
        # no limit: stop_all() ends it
        while (report := self._reports.get()) is not None:
            while not self._is_over.is_set():
                try:
                    self._send(report)
                    break
                except AnabranchError:
                    self._is_over.wait(SEND_AGAIN_SECONDS)


def _end(process: AgentProcess, kind: EndKind) -> None:
    with process.lock:
        handle = process.handle
        process.is_unwanted = process.is_unwanted or kind is not EndKind.DUMP
        has_ended = process.has_ended
    if handle is None or has_ended:
        return  # it ends as soon as it is there
    end = {EndKind.STOP: handle.stop, EndKind.KILL: handle.kill, EndKind.DUMP: handle.dump}[kind]
    with contextlib.suppress(AnabranchError, OSError):
        end()


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"anabranch-agent-{name}", daemon=True)
    thread.start()
    return thread
