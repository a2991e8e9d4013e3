"""The coordinator's door: hands each call to the part that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from anabranch.coordinator.failure_log import FailureLog
from anabranch.coordinator.host_registry import HostRegistry
from anabranch.coordinator.service_access import ServiceAccess
from anabranch.coordinator.watch_server import WatchServer
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.transport.codec import different_versions
from anabranch.transport.messages import hosts, lanes
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.deaths import WatchDeaths
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.names import NAMES, Request, StreamRequest, WorkerCall
from anabranch.transport.server import Reply
from anabranch.transport.signs_of_life import Item


class CallRouter:
    """Handler of the driver's server (transport: Handler, StreamHandler)."""

    def __init__(
        self,
        begin: Callable[[lanes.Begin], lanes.LaneGrant],
        finish: Callable[[lanes.Finish], Nothing],
        failures: FailureLog,
        registry: HostRegistry,
        access: ServiceAccess,
        deaths: WatchServer,
    ) -> None:
        self._begin, self._finish = begin, finish
        self._failures, self._registry, self._access = failures, registry, access
        self._deaths = deaths

    def call(self, request: Request) -> object:
        """Calls of lanes and of agents."""
        match request:
            case lanes.Begin():
                return self._begin(request)
            case lanes.Finish():
                return self._finish(request)
            case lanes.LaneFailed():
                self._failures.note(request)
                return Nothing()
            case Ping():
                return Nothing()
            case hosts.Introduce():
                return self._access.introduce(request)
            case hosts.Join() | hosts.Prove() | hosts.Beat() | hosts.Report() | hosts.Leave():
                return self._registry.call(request)
            case _:
                raise _misdirected(request)

    def stream(self, request: StreamRequest) -> Iterator[Item]:
        """Orders for agents; deaths, for lanes and workers."""
        match request:
            case hosts.Orders():
                return self._registry.stream(request)
            case WatchDeaths():
                return self._deaths.stream(request)
            case _:
                raise _misdirected(request)

    def exchange(self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Lanes send rows to workers only."""
        raise InvalidArgument("Rows go to a worker, not to the coordinator.")


def _misdirected(request: WorkerCall | StreamRequest) -> AnabranchError:
    name = NAMES[type(request)]
    return different_versions(f"Call '{name}' is for workers, not for the coordinator")
