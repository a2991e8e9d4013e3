"""Where a service's hosts come from (contract)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId
from anabranch.transport.auth import Credentials, new_token


class KnownHost(Protocol):
    """A host with workers."""

    @property
    def carrier(self) -> str:
        """What keeps its agent running."""


class KnownHosts(Protocol):
    """The hosts of a service, as their source sees them."""

    def hosts(self) -> Mapping[HostId, KnownHost]:
        """Those with workers."""

    def lost(self) -> Mapping[HostId, str]:
        """Those that were lost and have not come back, and why."""

    def expect(self, count: int, seconds: float) -> None:
        """Workers start when so many hosts have joined, or after some seconds."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call this after a host has joined or was lost."""


class HostSource:
    """Brings agents to the coordinator: by Spark jobs, or by waiting for them."""

    port: int = 0
    """That the coordinator is to listen on; 0: any that is free."""

    def join_token(self) -> str:
        """What agents join with; asked for once, before `start`."""
        return new_token()

    def renewed_join_token(self) -> str:
        """Another one, in place of one that is revoked."""
        raise InvalidArgument(
            "Only hosts that join by themselves have a token to revoke: hosts=JoinedHosts(...)."
        )

    def start(self, registry: KnownHosts, address: str, credentials: Credentials) -> None:
        """The coordinator listens at an address; agents join with these credentials."""
        raise NotImplementedError

    def stop(self) -> None:
        """No agent is needed any more; they have been told."""
        raise NotImplementedError
