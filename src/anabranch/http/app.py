"""The application: operations as routes, and what is not JSON: events, metrics, health, login."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from anabranch.http import problems
from anabranch.http.api import Api
from anabranch.http.events import EventStream
from anabranch.http.guard import COOKIE
from anabranch.http.metrics import Metrics
from anabranch.http.openapi import PREFIX, document
from anabranch.http.operation import Answer, ApiCall, Operation
from anabranch.http.page import PageFiles, enter
from anabranch.http.problems import Problem
from anabranch.http.schema import NotAsPromised, check, from_text
from anabranch.http.tokens import SESSION_SECONDS, Tokens

BODY_BYTES_MAX = 1 << 20
BODY_SECONDS_MAX = 10.0
THREADS = 4
"""Requests that ask the service at the same time; others wait."""
CAUSE_HEADER = "x-anabranch-cause"
CAUSES = ("command line", "page")
"""Who may say that it asks; others are the API."""

RequestHandler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class About:
    """What a page must know of the server it comes from."""

    location: str
    is_live: bool
    """Whether a service runs; else this is what its journal tells."""
    url: str
    is_secure: bool = False


class App:
    """Starlette's application for a service."""

    def __init__(
        self, api: Api, events: EventStream, metrics: Metrics, tokens: Tokens, about: About
    ) -> None:
        self._api, self._events, self._metrics, self._tokens = api, events, metrics, tokens
        self._about, self._page = about, PageFiles()
        self._threads = anyio.CapacityLimiter(THREADS)
        operations = api.operations()
        described = document(operations)
        routes = [
            Route(PREFIX + each.path, self._endpoint(each), methods=[each.method])
            for each in operations
        ]

        async def openapi(_: Request) -> Response:
            return JSONResponse(described)

        routes += [
            Route(f"{PREFIX}/events", self._listen),
            Route(f"{PREFIX}/session", self._session),
            Route(f"{PREFIX}/logins", self._new_login, methods=["POST"]),
            Route("/assets/{name}", self._asset),
            Route("/openapi.json", openapi),
            Route("/metrics", self._scrape),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            Route("/login", self._login),
            Route("/favicon.ico", self._no_icon),
            Route("/", self._front),
        ]
        handlers: Any = {HTTPException: _refused, Exception: _failed}
        self.starlette = Starlette(routes=routes, exception_handlers=handlers)

    def _endpoint(self, operation: Operation) -> RequestHandler:
        async def endpoint(request: Request) -> Response:
            try:
                call = await _call(operation, request)
                status, body = await self._in_thread(lambda: operation.handle(call))
            except Exception as error:
                return problems.respond(request, error)
            return Response(_encode(body), status, media_type="application/json")

        return endpoint

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def _listen(self, request: Request) -> Response:
        try:
            events: AsyncIterator[str] = self._events.listen()
        except Problem as problem:
            return problem.response()
        return StreamingResponse(events, media_type="text/event-stream")

    async def _scrape(self, request: Request) -> Response:
        try:
            _, text = await self._in_thread(lambda: (200, self._metrics.text()))
        except Exception as error:
            return problems.respond(request, error)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        try:
            _, is_ready = await self._in_thread(lambda: (200, self._api.is_ready()))
        except Exception as error:
            return problems.respond(request, error)
        return PlainTextResponse(
            "ready\n" if is_ready else "workers start\n", 200 if is_ready else 503
        )

    async def _login(self, request: Request) -> Response:
        found = self._tokens.log_in(request.query_params.get("code", ""))
        if found is None:
            if self._tokens.session_of(request.cookies.get(COOKIE, "")) is not None:
                return RedirectResponse("/", 303)  # the link was used by this very browser
            text = "This link was used, or is too old. Ask for a new one: service.url.\n"
            return PlainTextResponse(text, 403)
        answer = enter()
        answer.set_cookie(
            COOKIE,
            found[0],
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=self._about.is_secure,
        )
        return answer

    async def _session(self, request: Request) -> Response:
        session, about = request.scope["session"], self._about
        return JSONResponse(
            {
                "role": request.scope["role"].name.lower(),
                "csrf": None if session is None else session.csrf,
                "location": about.location,
                "is_live": about.is_live,
                "version": version("anabranch"),
            }
        )

    async def _new_login(self, _: Request) -> Response:
        """For a command of the same user: a link for a browser."""
        url = f"{self._about.url}/login?code={self._tokens.new_login()}"
        return JSONResponse({"url": url}, 201)

    async def _no_icon(self, _: Request) -> Response:
        """Browsers ask for it where a document names none; the page names its own."""
        return Response(status_code=204)

    async def _front(self, _: Request) -> Response:
        return self._page.front()

    async def _asset(self, request: Request) -> Response:
        found = self._page.asset(request.path_params["name"])
        if found is None:
            return Problem(404, "There is no such file. Load the page again.").response()
        return found


async def _call(operation: Operation, request: Request) -> ApiCall:
    query: dict[str, Any] = {}
    try:
        for name, text in request.query_params.multi_items():
            if name not in operation.query:
                known = ", ".join(operation.query) or "none"
                raise NotAsPromised(f"There is no parameter {name!r} here, only: {known}.")
            query[name] = from_text(text, operation.query[name], f"The parameter {name!r}")
        for name in operation.required:
            if name not in query:
                raise NotAsPromised(f"The parameter {name!r} is missing.")
        body = None
        if operation.body is not None:
            body = await _body(request)
            check(body, operation.body)
    except NotAsPromised as error:
        raise Problem(400, str(error)) from None
    cause = request.headers.get(CAUSE_HEADER, "")
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) > 200:
        raise Problem(400, "The Idempotency-Key is longer than 200 characters.")
    return ApiCall(request.path_params, query, body, cause if cause in CAUSES else "api", key)


async def _body(request: Request) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "The body must be JSON: Content-Type: application/json.")
    content = b""
    try:
        with anyio.fail_after(BODY_SECONDS_MAX):
            async for chunk in request.stream():
                content += chunk
                if len(content) > BODY_BYTES_MAX:
                    raise Problem(413, f"The body has more than {BODY_BYTES_MAX} bytes.")
    except TimeoutError:
        text = f"The body did not come within {BODY_SECONDS_MAX:.0f} s. Send it at once."
        raise Problem(408, text, connection="close") from None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotAsPromised(f"The body is not JSON: {error}.") from None


def _encode(body: Any) -> bytes:
    return json.dumps(body, default=str, allow_nan=False).encode()


async def _refused(_: Request, error: HTTPException) -> Response:
    phrases = {404: "There is nothing at this path. See /openapi.json."}
    detail = phrases.get(error.status_code, str(error.detail))
    headers = {name.replace("-", "_"): value for name, value in (error.headers or {}).items()}
    return Problem(error.status_code, detail, **headers).response()


async def _failed(request: Request, error: Exception) -> Response:
    return problems.respond(request, error)
