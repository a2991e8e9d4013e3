"""What an agent shows when it joins: versions, the location, an address that others reach."""

from __future__ import annotations

import contextlib
import platform
import socket
import threading
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType

from anabranch.durability.blobs import BlobStore
from anabranch.errors import AnabranchError
from anabranch.model.ids import AgentId
from anabranch.processes.state_folder import folder_flaw
from anabranch.transport.messages.hosts import JoinReply, Prove, Versions

SEND_SECONDS_MAX = 5.0

LOCATION_SECONDS_MAX = 30.0
"""For the state location and the local folder to answer: a mounted disk may hang for ever."""


def versions() -> Versions:
    """Of this process; empty where nobody knows (a source folder)."""
    minor = ".".join(platform.python_version_tuple()[:2])
    return Versions(minor, *(_version(name) for name in ("pyarrow", "pyspark", "anabranch")))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def own_address(coordinator: str, seconds_max: float) -> str:
    """The address that connections to the coordinator come from."""
    host, _, port = coordinator.rpartition(":")
    with socket.create_connection((host, int(port)), seconds_max) as connection:
        return str(connection.getsockname()[0])


class Echo:
    """Answers at the address of this host with the agent's name, as long as it is open."""

    def __init__(self, agent: AgentId, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # no limit: it ends when it is shut down
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.bind((address, 0))
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        self.listens_at = f"{address}:{self._socket.getsockname()[1]}"
        self._agent = agent
        self._thread = threading.Thread(target=self._answer, name="anabranch-echo", daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            try:
                # no limit: it ends when the socket is shut down
                caller, _ = self._socket.accept()
            except OSError:
                return  # it was shut down
            with caller, contextlib.suppress(OSError):  # it asks again, or gives up
                caller.settimeout(SEND_SECONDS_MAX)
                # no limit: the socket has one
                caller.sendall(self._agent.encode())

    def __enter__(self) -> Echo:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(SEND_SECONDS_MAX)


def proof(
    agent: AgentId,
    reply: JoinReply,
    listens_at: str,
    folder: str,
    seconds_max: float = LOCATION_SECONDS_MAX,
) -> Prove:
    """Read what the coordinator has put into the location, and answer it there.

    `folder` is where workers of this host keep state that is not in memory.
    """
    shown: list[Prove] = []
    # Whoever hangs in the system cannot be ended: it is left alone.
    thread = threading.Thread(
        target=lambda: shown.append(_shown(agent, reply, listens_at, folder)),
        name="anabranch-proof",
        daemon=True,
    )
    thread.start()
    thread.join(seconds_max)
    if shown:
        return shown[0]
    error = f"It, or the local folder {folder}, has not answered for {seconds_max:g} s."
    return Prove(agent, "", "", listens_at, error)


def _shown(agent: AgentId, reply: JoinReply, listens_at: str, folder: str) -> Prove:
    path = f"{reply.nonce_path.rpartition('/')[0]}/{agent}"
    nonce, error = "", None
    try:
        blobs = BlobStore(reply.location)
        nonce = blobs.read(reply.nonce_path).to_pybytes().decode()
        blobs.write(path, nonce.encode())
    except (AnabranchError, OSError, ValueError) as flaw:
        error = str(flaw)
    return Prove(agent, nonce, path, listens_at, error, folder_flaw(folder, reply.state_folder))
