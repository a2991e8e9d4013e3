"""Shows that the coordinator and a host see the same state location."""

from __future__ import annotations

import contextlib
import socket

from anabranch.durability.blobs import BlobStore
from anabranch.durability.names import AGENTS_FOLDER
from anabranch.errors import AnabranchError
from anabranch.model.ids import HostId
from anabranch.transport.auth import new_token
from anabranch.transport.messages.hosts import Prove


class LocationProof:
    """A file with a nonce for agents to read, and their answers beside it."""

    def __init__(self, blobs: BlobStore, run_id: str) -> None:
        self._blobs = blobs
        self._nonce = new_token()
        self.path = f"{AGENTS_FOLDER}/{run_id}/nonce"

    @property
    def location(self) -> str:
        """What opens the location on another host."""
        return self._blobs.address

    def begin(self) -> None:
        """Put the nonce there; what a service before this one has left goes."""
        self.end()
        self._blobs.write(self.path, self._nonce.encode())

    def end(self) -> None:
        """Nobody has to prove anything any more."""
        with contextlib.suppress(AnabranchError, OSError):
            self._blobs.delete_all(self._blobs.list(AGENTS_FOLDER))

    def flaw(self, host: HostId, proof: Prove) -> str | None:
        """Why the host cannot run workers, as a sentence; None: it sees the location."""
        driver = socket.gethostname()
        ask = f"Host {host} cannot run workers of the service on {driver}"
        shared = "Use a location that both see: an object store, or a folder of a shared disk at "
        shared += f"the same path. It is {self._blobs.location}."
        if proof.error is not None:
            return f"{ask}: it cannot use the state location. {proof.error} {shared}"
        if proof.nonce != self._nonce:
            return f"{ask}: it sees another folder under the name of the state location. {shared}"
        try:
            answer = self._blobs.read(proof.proof_path).to_pybytes().decode()
        except (AnabranchError, OSError) as error:
            return f"{ask}: what it writes to the state location does not arrive. {error} {shared}"
        if answer != self._nonce:
            return f"{ask}: what it writes to the state location is not what arrives. {shared}"
        return None
