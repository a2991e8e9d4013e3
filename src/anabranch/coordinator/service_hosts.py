"""Where a service's workers run: on the driver's machine, or on hosts with agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.coordinator.cluster_launcher import ClusterLauncher
from anabranch.coordinator.host_registry import HostRegistry
from anabranch.coordinator.host_wait import HostWait
from anabranch.coordinator.join_check import WORKER_BYTES_MIN
from anabranch.coordinator.service_access import ServiceAccess
from anabranch.coordinator.service_workers import check_seconds
from anabranch.coordinator.site_traffic import lane_host
from anabranch.durability.blobs import BlobStore
from anabranch.errors import InvalidArgument
from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId, WorkerId
from anabranch.processes.agent_config import JOINED
from anabranch.processes.host_source import HostSource
from anabranch.processes.launcher import Launcher, LocalLauncher
from anabranch.protocol.coordinator_messages import HostJoined, HostLost, HostsAwaited
from anabranch.protocol.leases import LeaseTimes
from anabranch.transport.messages.hosts import StateFolder

HOST_TIMEOUT_SECONDS = 10.0
"""A host that has not been heard for so long is lost."""
NO_HOST_TIMEOUT_SECONDS = 300.0
"""A query whose workers have had no host for so long gets an error."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What a user wants of hosts."""

    source: HostSource | None = None
    """None: the driver's machine is the only host."""
    timeout: float = HOST_TIMEOUT_SECONDS
    no_host_timeout: float = NO_HOST_TIMEOUT_SECONDS
    worker_bytes: int = WORKER_BYTES_MIN
    """Memory that a host must have for each worker."""
    state_folder: StateFolder | None = None
    """Where workers of other hosts keep state that is not in memory."""
    local: Callable[[], Launcher] = LocalLauncher
    """Makes what starts workers on the driver's machine."""


class ServiceHosts:
    """All that the coordinator has to do with hosts."""

    def __init__(
        self,
        settings: HostSettings,
        blobs: BlobStore,
        run_id: str,
        dispatch: Callable[[HostJoined | HostLost | HostsAwaited], None],
        access: ServiceAccess,
    ) -> None:
        self._source = source = settings.source
        times = LeaseTimes(settings.timeout)
        self.registry = HostRegistry(
            *(blobs, run_id, dispatch, dispatch, times),
            *(settings.worker_bytes, settings.state_folder),
        )
        self._dispatch, self._no_host_timeout = dispatch, settings.no_host_timeout
        self._wait: HostWait | None = None
        self.launcher: Launcher = (
            settings.local() if source is None else ClusterLauncher(self.registry)
        )
        self.present = [HostJoined(DRIVER, None, {})] if source is None else []
        """Hosts that are there without having to join."""
        self.port = 0 if source is None else source.port
        self._access = access

    def start(self, address: str, waiting: Callable[[], tuple[WorkerId, ...]]) -> None:
        """The coordinator listens: agents may come; `waiting` are workers without a host."""
        if self._source is not None:
            self.registry.start()
            self._wait = HostWait(waiting, self._dispatch, self._no_host_timeout)
            join = self._access.join(self._source.join_token())
            self._source.start(self.registry, address, join)

    def revoke_join_token(self) -> None:
        """Send joined hosts away; others may join with a new token."""
        if self._source is None:
            raise InvalidArgument(
                "No host has joined this service: its workers are on the driver's machine."
            )
        renewed = self._source.renewed_join_token()
        self._access.revoke_join_tokens()
        self._access.join(renewed)
        for host, record in self.registry.hosts().items():
            if record.carrier == JOINED:
                self.registry.release(host, "The join token of this host was revoked.")

    def stop(self) -> None:
        """Send all agents away."""
        if self._wait is not None:
            self._wait.stop()
        if self._source is not None:
            self.registry.stop()
            self._source.stop()

    def host_of(self, names: Sequence[str]) -> HostId | None:
        """The host of a lane; one without workers is known by its address.

        None if there is only one host, or nobody knows.
        """
        if self._source is None or not names:
            return None
        addresses = {host: each.address for host, each in self.registry.hosts().items()}
        return lane_host(names, addresses) or HostId(names[0])

    def describe(self, runs: Mapping[WorkerId, HostId]) -> dict[str, dict[str, Any]]:
        """Plain values about hosts, those that were lost included; `runs`: where workers are."""

        def workers(host: HostId) -> list[str]:
            return [worker for worker, where in runs.items() if where == host]

        if self._source is None:
            return {DRIVER: {"capacity": None, "labels": {}, "workers": workers(DRIVER)}}
        shown: dict[str, dict[str, Any]] = {}
        for host, record in self.registry.hosts().items():
            shown[host] = {
                "address": record.address,
                "carrier": record.carrier,
                "capacity": record.facts.capacity,
                "labels": dict(record.facts.labels),
                "workers": workers(host),
                "memory_bytes": record.facts.memory_bytes,
                "since": record.since,
            }
        for host, reason in self.registry.lost().items():
            shown[host] = {"lost": reason, "workers": []}
        return shown


def host_settings(
    hosts: object,
    timeout: Any,
    no_host_timeout: Any,
    state_memory_bytes: int | None,
    state_folder: StateFolder,
) -> HostSettings:
    """What a user has written, checked."""
    check_seconds("host_timeout", timeout)
    check_seconds("no_host_timeout", no_host_timeout)
    if hosts is not None and hosts != DRIVER and not isinstance(hosts, HostSource):
        raise InvalidArgument(
            f'hosts must be "driver", SparkHosts(...) or JoinedHosts(...), got {hosts!r}.'
        )
    source = hosts if isinstance(hosts, HostSource) else None
    worker_bytes = WORKER_BYTES_MIN + (state_memory_bytes or 0)
    return HostSettings(source, timeout, no_host_timeout, worker_bytes, state_folder)
