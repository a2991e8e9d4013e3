"""Who may call a service, and what its servers show: tokens and certificates of one run."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from anabranch.errors import AccessRefused
from anabranch.transport.access import Access, Role
from anabranch.transport.auth import Credentials, new_token
from anabranch.transport.introduction import STRANGER, introduction_of, token_id
from anabranch.transport.messages.hosts import Introduce, Introduction
from anabranch.transport.tls import authority_for, is_loopback


class ServiceAccess:
    """Made anew for each run of a service; nothing of it is stored."""

    def __init__(self, listens_on: Iterable[str], tls: bool | None) -> None:
        """`tls` is the user's wish; None: as what it listens on needs it."""
        hosts = list(listens_on)
        self.is_exposed = not all(is_loopback(host) for host in hosts)
        """Whether other machines can reach the service."""
        authority = authority_for(hosts, tls)
        self.certificate = None if authority is None else authority.certificate
        self._trusted = None if authority is None else authority.pem
        self.credentials = Credentials(new_token(), self._trusted)
        """Of the coordinator and its workers."""
        self.known = Access(self.credentials.token)
        """What the coordinator's server asks for."""
        self._lock = threading.Lock()
        self._join_tokens: dict[str, str] = {}

    def of_workers(self) -> dict[str, Any]:
        """What the configuration of each worker has of it."""
        return {"credentials": self.credentials, "certificate": self.certificate}

    def join(self, token: str | None = None) -> Credentials:
        """What agents join with from now on; tokens before stay good until they are revoked."""
        given = token or new_token()
        with self._lock:
            self._join_tokens[token_id(given)] = given
        self.known.admit(given, Role.AGENT)
        self.known.admit(STRANGER, Role.STRANGER)
        return Credentials(given, self._trusted)

    def revoke_join_tokens(self) -> None:
        """All of them. Calls of agents that have them end; `join` makes a new one."""
        with self._lock:
            tokens, self._join_tokens = self._join_tokens, {}
        for token in tokens.values():
            self.known.revoke(token)

    def introduce(self, asked: Introduce) -> Introduction:
        """Show an agent that this is the service that its token is of."""
        with self._lock:
            token = self._join_tokens.get(asked.token_id)
        if token is None:
            raise AccessRefused(
                "The coordinator does not know the token of this host: it is of another service, "
                "or was revoked. Use the token file of the running service."
            )
        return introduction_of(token, asked, self._trusted)
