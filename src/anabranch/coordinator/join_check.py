"""Whether a host can run workers of this service; if not, why, in a sentence with both hosts."""

from __future__ import annotations

import socket
from dataclasses import fields

from anabranch.model.host import HostFacts
from anabranch.model.ids import AgentId, HostId
from anabranch.processes.agent_proof import versions
from anabranch.transport.messages.hosts import Join, Versions

DIAL_SECONDS_MAX = 5.0
NAMES = {"python": "Python", "pyarrow": "PyArrow", "pyspark": "PySpark", "anabranch": "Anabranch"}

WORKER_BYTES_MIN = 256 << 20
"""A worker without any state needs about as much, mostly for what it imports."""


def join_flaw(join: Join, worker_bytes: int) -> str | None:
    """What is wrong with a host, before anything is tried; `worker_bytes` each worker needs."""
    driver, host = socket.gethostname(), join.facts.host
    different = _different(join.versions, versions())
    if different:
        return (
            f"Host {host} has {', '.join(f'{n} {theirs}' for n, theirs, _ in different)}; the "
            f"service on {driver} has {', '.join(f'{n} {ours}' for n, _, ours in different)}. "
            "Install the same versions on both."
        )
    if capacity(join.facts, worker_bytes) == 0:
        need, memory = worker_bytes >> 20, join.facts.memory_bytes
        has = "no room for any" if memory is None else f"{memory >> 20} MiB for workers"
        return (
            f"Host {host} has {has}; a worker of the service on {driver} needs {need} MiB. Give "
            "the agent more with --memory or --capacity, or ask for less with state_memory_bytes."
        )
    return None


def capacity(facts: HostFacts, worker_bytes: int) -> int | None:
    """How many workers fit; None: there is no limit that is known."""
    limits = [] if facts.capacity is None else [max(0, facts.capacity)]
    if facts.memory_bytes is not None:
        limits.append(facts.memory_bytes // worker_bytes)
    return min(limits, default=None)


def _different(theirs: Versions, ours: Versions) -> list[tuple[str, str, str]]:
    found = []
    for field in fields(Versions):
        there, here = getattr(theirs, field.name), getattr(ours, field.name)
        if there and here and there != here:
            found.append((NAMES[field.name], there, here))
    return found


def folder_flaw(host: HostId, error: str | None) -> str | None:
    """What a host has said of its folder for state, with what to do about it."""
    if error is None:
        return None
    return (
        f"Host {host} cannot run workers of the service on {socket.gethostname()}: they would have "
        f"no room for their state. {error} A host that joins by itself may have a folder of its "
        "own: anabranch agent --local-dir."
    )


def address_flaw(host: HostId, agent: AgentId, listens_at: str | None) -> str | None:
    """Whether workers of a host can be reached from here: its agent answers as they will."""
    if listens_at is None:
        return None
    address, _, port = listens_at.rpartition(":")
    try:
        with socket.create_connection((address, int(port)), DIAL_SECONDS_MAX) as connection:
            connection.settimeout(DIAL_SECONDS_MAX)
            # no limit: the socket has one
            answer = b"".join(iter(lambda: connection.recv(64), b""))
        reason = "Somebody else answers there." if answer != agent.encode() else ""
    except (OSError, ValueError) as error:
        reason = f"{error}."
    if not reason:
        return None
    return (
        f"The address {address} of host {host} cannot be reached from the service's host, "
        f"{socket.gethostname()}: {reason} Give its agent the address that other hosts use, with "
        "--address, and open the ports of both hosts to each other."
    )
