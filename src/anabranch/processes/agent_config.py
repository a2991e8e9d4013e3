"""What an agent of a host is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.model.host import HostFacts
from anabranch.transport.auth import Credentials

SPARK = "spark"
"""Carried by a Spark task."""
JOINED = "joined"
"""Started by a person, systemd, Kubernetes."""

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Settings of an agent; can be pickled."""

    coordinator: str
    """Address, with the port."""
    credentials: Credentials = field(repr=False)
    """For its calls to the coordinator. Its workers have others. One that has only a token asks the
    coordinator for its certificate authority (`transport/introduction.py`)."""
    facts: HostFacts
    carrier: str = JOINED
    executor: str | None = None
    """Of the Spark task that carries it."""
    address: str | None = None
    """Of this host, as others reach it; None: the one that its connection to the coordinator has.
    """
    local_dir: str | None = None
    """Folder of this host for state that is not in memory; None: what the user of the service
    wants, else Spark's, else that of temporary files (`processes/state_folder.py`)."""
    tls: bool | None = None
    """Whether its calls are encrypted; None: always beyond loopback."""
    patience_seconds: float | None = PATIENCE_SECONDS
    """How long it tries to reach a coordinator that is not there; None: for ever."""
