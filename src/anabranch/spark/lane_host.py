"""The host that a lane runs on, under the names that an agent there would give it."""

from __future__ import annotations

import os
import socket
from functools import cache
from urllib.parse import urlsplit


@cache
def host_names(coordinator: str) -> tuple[str, ...]:
    """Addresses and name of this host, as seen by the coordinator at an address."""
    found = [os.environ.get("SPARK_LOCAL_IP"), _address_toward(coordinator), socket.gethostname()]
    return tuple(dict.fromkeys(name for name in found if name))


def _address_toward(coordinator: str) -> str | None:
    """The address of the interface that leads there; nothing is sent."""
    target = urlsplit(coordinator if "//" in coordinator else f"//{coordinator}")
    if target.hostname is None:
        return None
    family = socket.AF_INET6 if ":" in target.hostname else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # no limit: it sends nothing
        try:
            # no limit: it sends nothing
            probe.connect((target.hostname, target.port or 1))
        except OSError:
            return None
        return str(probe.getsockname()[0])
