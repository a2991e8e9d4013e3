"""Errors as `application/problem+json`: the condition, and a sentence that says what to do."""

from __future__ import annotations

import http
import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from anabranch.errors import (
    AnabranchError,
    InvalidArgument,
    LocationError,
    ReconfigurationFailed,
    ServiceUnavailable,
    StaleRouting,
)

_log = logging.getLogger("anabranch.http")

STATUS_OF: tuple[tuple[type[AnabranchError], int], ...] = (
    (StaleRouting, 409),
    (InvalidArgument, 400),
    (ReconfigurationFailed, 409),
    (LocationError, 503),
    (ServiceUnavailable, 503),
)
MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that is refused before it reaches the service."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> JSONResponse:
        """For the caller."""
        title = http.HTTPStatus(self.status).phrase
        return _response(self.status, title, self.detail, self.headers)


def respond(request: Request, error: Exception) -> JSONResponse:
    """Whatever went wrong."""
    if isinstance(error, Problem):
        return error.response()
    if isinstance(error, AnabranchError):
        status = next((code for kind, code in STATUS_OF if isinstance(error, kind)), 500)
        return _response(status, error.condition, error._message, {})
    _log.exception("Unexpected error in %s %s", request.method, request.url.path)
    detail = "Unexpected error; the driver's log has it. Please report it."
    return _response(500, "Internal Server Error", detail, {})


def _response(status: int, title: str, detail: str, headers: dict[str, str]) -> JSONResponse:
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    return JSONResponse({**body, "detail": detail}, status, headers, MEDIA_TYPE)
