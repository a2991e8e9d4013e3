"""Hosts that join by themselves: `anabranch agent --join`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.processes.host_source import HostSource, KnownHosts
from anabranch.transport.auth import Credentials, new_token

_log = logging.getLogger("anabranch.coordinator")

EXPECT_SECONDS = 60.0
"""How long the first workers wait until as many hosts as expected have joined."""


class JoinedHosts(HostSource):
    """Workers run on hosts whose agents were started there by hand, systemd or Kubernetes.

    Parameters
    ----------
    expect : int
        Number of hosts to wait for, so that the first workers are spread over all of them.
    port : int
        Port on which the service listens for agents. Default: any that is free; the log names it.
    token_file : str, optional
        File with the token that agents join with. Made, readable for you only, if there is none.
        Take it to the hosts: whoever has it can offer a host to this service. Without a file,
        the token is new for each service, and `service.status()` does not tell it.
    """

    def __init__(self, expect: int = 1, port: int = 0, token_file: str | None = None) -> None:
        given: Any
        for name, given, least in (("expect", expect, 1), ("port", port, 0)):
            if not isinstance(given, int) or given < least:
                raise InvalidArgument(f"{name} must be a whole number from {least}, got {given!r}.")
        self._expect, self.port = expect, port
        self._token_file = token_file

    def join_token(self) -> str:
        """The token in the file; a new one if there is no file."""
        if self._token_file is None:
            return new_token()
        return token_in(self._token_file)

    def renewed_join_token(self) -> str:
        """Another one, in the file if there is one."""
        if self._token_file is None:
            return new_token()
        Path(self._token_file).unlink(missing_ok=True)
        return token_in(self._token_file)

    def start(self, registry: KnownHosts, address: str, credentials: Credentials) -> None:
        """Agents come by themselves."""
        registry.expect(self._expect, EXPECT_SECONDS)
        where = "" if self._token_file is None else f" --token-file {self._token_file}"
        _log.warning(
            "Waiting for %d hosts. On each: anabranch agent --join %s%s",
            self._expect,
            address,
            where,
        )

    def stop(self) -> None:
        """Agents have been told to return."""


def token_in(file: str) -> str:
    """The token in a file, which is made with a new one if it does not exist."""
    path = Path(file)
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = path.read_text(encoding="utf-8").strip()
        if not token:
            raise InvalidArgument(f"The token file {file} is empty. Delete it.") from None
        return token
    except OSError as error:
        raise InvalidArgument(f"The token file {file} cannot be written: {error}.") from error
    token = new_token()
    with os.fdopen(made, "w", encoding="utf-8") as new:
        new.write(token + "\n")
    return token
