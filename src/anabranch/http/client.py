"""Calls of commands to a running service: found by its location, with its user's token."""

from __future__ import annotations

import json
import os
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
_ERRORS: dict[int, type[AnabranchError]] = {
    400: InvalidArgument,
    404: InvalidArgument,
    409: StaleRouting,
    422: InvalidArgument,
}


class ServiceClient:
    """A running service, from another process."""

    def __init__(self, endpoint: ServiceEndpoint, token: str) -> None:
        self.endpoint = endpoint
        self._token = token
        # Never by a proxy: the token is for this machine only.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @classmethod
    def of(cls, location: str) -> ServiceClient:
        """The service that runs on a location."""
        endpoint = ServiceEndpoint.read(StateStore(location).look().blobs)
        if endpoint is None:
            raise NotRunning(
                f"No service listens for {location}. Does it run, with the extra ui and without "
                f"http=False? `anabranch status {location}` says when it ended."
            )
        token = os.environ.get(TOKEN_VARIABLE) or TokenFile(endpoint).read()
        return cls(endpoint, token)

    def get(self, path: str, **query: Any) -> Any:
        """Look at something."""
        asked = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
        return self._call("GET", f"{path}?{asked}" if asked else path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Change something."""
        return self._call("POST", path, {} if body is None else body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.endpoint.url}/api/v1{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "X-Anabranch-Cause": "command line",
            },
            method=method,
        )
        try:
            with self._opener.open(request, timeout=CALL_SECONDS_MAX) as answer:
                return json.loads(answer.read())
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
