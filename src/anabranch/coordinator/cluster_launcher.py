"""Starts workers on the hosts that have joined: the coordinator's end of their agents."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from anabranch.coordinator.host_registry import HostRegistry
from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import AgentId, HostId
from anabranch.processes.launcher import START_SECONDS_MAX, STOP_SECONDS_MAX
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.messages.hosts import (
    EndHead,
    EndKind,
    OrderHead,
    Report,
    ReportKind,
    StartHead,
)

GRACE_SECONDS = 5.0
"""More than an agent takes itself, for its report to arrive."""
SILENT_SECONDS_MAX = START_SECONDS_MAX + 15.0
"""By then an agent has said whether a worker has started; if not, it does not obey."""
KILL_SECONDS_MAX = 15.0
"""After which a process that was killed counts as gone, whatever its agent says."""


class RemoteWorker:
    """A worker process on some host."""

    def __init__(
        self,
        number: int,
        host: HostId,
        agent: AgentId,
        config: WorkerConfig,
        order: Callable[[AgentId, OrderHead], None],
        on_exit: Callable[[str], None],
    ) -> None:
        self.number, self.host, self.agent = number, host, agent
        self.address, self.pid = "", 0
        self._start = StartHead(number, config.to_json())
        self._worker = config.worker
        self._order, self._on_exit = order, on_exit
        self._changed = threading.Condition()
        self._has_started = False
        self._failure: str | None = None
        """Why it is not there."""
        self._end: EndKind | None = None

    # -- for whoever has it: StartedWorker --

    def start(self) -> bool:
        """Return when it listens; False: its agent has said nothing."""
        self._order(self.agent, self._start)
        with self._changed:
            is_told = self._changed.wait_for(
                lambda: self._has_started or self._failure is not None, SILENT_SECONDS_MAX
            )
            failure = self._failure
        if failure is not None:
            raise ServiceUnavailable(f"Worker {self._worker} on host {self.host}: {failure}")
        return is_told

    def stop(self) -> None:
        """End it in order; insist if it does not."""
        self._tell(EndKind.STOP)
        if not self._is_gone(STOP_SECONDS_MAX + GRACE_SECONDS):
            self.kill()

    def kill(self) -> None:
        """End it at once; what its agent cannot end counts as gone all the same."""
        self._tell(EndKind.KILL)
        if not self._is_gone(KILL_SECONDS_MAX):
            self.gone(f"process {self.pid} on host {self.host} could not be ended.")

    def dump(self) -> None:
        """Its stacks go to standard error of its agent."""
        self._order(self.agent, EndHead(self.number, EndKind.DUMP))

    def _tell(self, kind: EndKind) -> None:
        with self._changed:
            self._end = kind
        self._order(self.agent, EndHead(self.number, kind))

    def _is_gone(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._failure is not None, seconds)

    # -- for the launcher --

    def listens(self, address: str, pid: int) -> None:
        """Its agent says that it has started."""
        with self._changed:
            self.address, self.pid = address, pid
            self._has_started = self._failure is None
            self._changed.notify_all()

    def gone(self, reason: str) -> None:
        """It has ended, did not start, or its host is lost; said once."""
        with self._changed:
            if self._failure is not None:
                return
            self._failure, had_started = reason, self._has_started
            self._changed.notify_all()
        if had_started:
            self._on_exit(reason)

    def open_order(self) -> OrderHead | None:
        """The order of which nothing has been heard."""
        with self._changed:
            if self._end is not None:
                return EndHead(self.number, self._end)
            return None if self._has_started else self._start


class ClusterLauncher:
    """The launcher (processes: Launcher) for hosts with agents."""

    def __init__(self, registry: HostRegistry) -> None:
        self._registry = registry
        self._numbers = itertools.count(1)
        self._processes: dict[int, RemoteWorker] = {}
        self._lock = threading.Lock()
        registry.listen(self)

    def start(
        self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]
    ) -> RemoteWorker:
        """Let the agent of a host start a worker; return when it listens."""
        agent = self._registry.agent_of(host)
        if agent is None:
            raise ServiceUnavailable(f"Host {host} has no agent any more.")
        number = next(self._numbers)

        process = RemoteWorker(number, host, agent, config, self._registry.order_agent, on_exit)
        with self._lock:
            self._processes[number] = process
        if self._registry.agent_of(host) != agent:  # lost meanwhile; nobody would say so
            self.agent_gone(agent, f"Host {host} is lost.")
        if not process.start():
            reason = f"Its agent has not started a worker in {SILENT_SECONDS_MAX:g} s."
            self._registry.give_up(agent, reason)
            raise ServiceUnavailable(f"Host {host} is given up: {reason}")
        return process

    def close(self) -> None:
        """Agents return when the registry stops."""

    # -- for the registry: AgentListener --

    def reported(self, report: Report) -> None:
        """An agent tells of a process."""
        with self._lock:
            process = self._processes.get(report.process)
        if process is None or process.agent != report.agent:
            return
        if report.kind is ReportKind.STARTED:
            process.listens(report.address or "", report.pid or 0)
            return
        with self._lock:
            self._processes.pop(report.process, None)
        process.gone(report.reason)

    def agent_gone(self, agent: AgentId, reason: str) -> None:
        """All processes of an agent are gone."""
        with self._lock:
            gone = [process for process in self._processes.values() if process.agent == agent]
            for process in gone:
                del self._processes[process.number]
        for process in gone:
            process.gone(reason)

    def open_orders(self, agent: AgentId) -> list[OrderHead]:
        """What an agent may not have heard."""
        with self._lock:
            mine = [process for process in self._processes.values() if process.agent == agent]
        orders = [process.open_order() for process in mine]
        return [order for order in orders if order is not None]
