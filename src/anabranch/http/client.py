"""Calls of commands to a running service: found by its location, with its user's token."""

from __future__ import annotations

import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from anabranch.durability.store import StateStore
from anabranch.errors import (
    AnabranchError,
    InvalidArgument,
    NotRunning,
    ServiceUnavailable,
    StaleRouting,
)
from anabranch.http.endpoint import ServiceEndpoint, TokenFile

TOKEN_VARIABLE = "ANABRANCH_TOKEN"
"""For a service whose token file is elsewhere."""
CALL_SECONDS_MAX = 120.0
AGAIN_SECONDS = 1.0
"""Before a request whose answer was lost is sent again, with the same Idempotency-Key."""
_ERRORS: dict[int, type[AnabranchError]] = {
    400: InvalidArgument,
    404: InvalidArgument,
    409: StaleRouting,
    422: InvalidArgument,
}


class ServiceClient:
    """A running service, from another process."""

    def __init__(
        self, endpoint: ServiceEndpoint, token: str, seconds_max: float = CALL_SECONDS_MAX
    ) -> None:
        self.endpoint, self._seconds_max = endpoint, seconds_max
        self._token = token
        # Never by a proxy: the token is for this machine only.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @classmethod
    def of(cls, location: str, seconds_max: float = CALL_SECONDS_MAX) -> ServiceClient:
        """The service that runs on a location."""
        endpoint = ServiceEndpoint.read(StateStore(location).look().blobs)
        if endpoint is None:
            raise NotRunning(
                f"No service listens for {location}. Does it run, with the extra ui and without "
                f"http=False? `anabranch status {location}` says when it ended."
            )
        token = os.environ.get(TOKEN_VARIABLE) or TokenFile(endpoint).read()
        return cls(endpoint, token, seconds_max)

    def get(self, path: str, **query: Any) -> Any:
        """Look at something."""
        asked = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
        return self._call("GET", f"{path}?{asked}" if asked else path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Change something."""
        return self._call("POST", path, {} if body is None else body)

    def begin(self, request: Mapping[str, Any]) -> Any:
        """Ask for a reconfiguration, once: if the answer is lost, the same is asked again."""
        key = secrets.token_hex(16)
        try:
            return self._call("POST", "/moves", request, key)
        except NotRunning:
            time.sleep(AGAIN_SECONDS)
            return self._call("POST", "/moves", request, key)

    def metrics(self) -> str:
        """What Prometheus reads."""
        return self._read("GET", "/metrics").decode()

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, key: str | None = None
    ) -> Any:
        return json.loads(self._read(method, f"/api/v1{path}", body, key))

    def _read(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, key: str | None = None
    ) -> bytes:
        request = urllib.request.Request(
            f"{self.endpoint.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "X-Anabranch-Cause": "command line",
            },
            method=method,
        )
        if key is not None:
            request.add_header("Idempotency-Key", key)
        try:
            with self._opener.open(request, timeout=self._seconds_max) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise _error(error) from None
        except OSError as error:
            where = f"{self.endpoint.url} (process {self.endpoint.pid} on {self.endpoint.host})"
            raise NotRunning(
                f"The service at {where} does not answer: {error}. If it has died, start the "
                "service again."
            ) from None


def _error(error: urllib.error.HTTPError) -> AnabranchError:
    try:
        detail = str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"HTTP {error.code} {error.reason}"
    return _ERRORS.get(error.code, ServiceUnavailable)(detail)
