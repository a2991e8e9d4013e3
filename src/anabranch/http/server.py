"""The server in the driver: a thread with a loop of its own, that may fail without any query."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import threading
from typing import Any

import uvicorn

from anabranch.durability.blobs import BlobStore
from anabranch.errors import InvalidArgument
from anabranch.http.api import Api
from anabranch.http.app import About, App
from anabranch.http.controlled import ControlledService
from anabranch.http.door import Door
from anabranch.http.endpoint import ServiceEndpoint, TokenFile, this_host, tokens_of_user
from anabranch.http.events import EventStream
from anabranch.http.guard import Guard
from anabranch.http.metrics import Metrics
from anabranch.model.journal_entry import JournalEntry

_log = logging.getLogger("anabranch.http")

HOST = "127.0.0.1"
START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 5.0
KEEP_ALIVE_SECONDS = 5
BACKLOG = 128
"""Connections that wait to be let in; the kernel refuses more."""


class HttpServer:
    """Listens on loopback until stopped."""

    def __init__(
        self, service: ControlledService, blobs: BlobStore, port: int = 0, is_live: bool = True
    ) -> None:
        """`is_live`: it answers for a service, so the location tells where; else for a journal."""
        self._blobs, self._is_live = blobs, is_live
        self._tokens, self._events = tokens_of_user(), EventStream()
        api = Api(service, blobs)
        metrics = Metrics(api.status, api.source_lag)
        listening = _bind(port)
        port = listening.getsockname()[1]
        self.endpoint = ServiceEndpoint(
            secrets.token_hex(8), f"http://{HOST}:{port}", os.getpid(), this_host()
        )
        hosts = [f"{name}:{port}" for name in (HOST, "localhost", "[::1]")]
        about = About(blobs.location, is_live, self.endpoint.url)
        app = App(api, self._events, metrics, self._tokens, about)
        self._door = Door()
        self._server = _Server(
            uvicorn.Config(
                Guard(app.starlette, self._tokens, hosts, "http", self._door),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                http="h11",
                ws="none",
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
            )
        )
        self._socket = listening
        self.token_file = TokenFile(self.endpoint)

        def heard(entry: JournalEntry) -> None:
            metrics.note(entry)
            api.page.note(entry)
            self._events.publish(entry)

        service.on_entry(heard)
        self._thread = threading.Thread(target=self._run, name="anabranch-http", daemon=True)

    def start(self) -> None:
        """Listen, and tell where."""
        try:
            self.token_file.write(self._tokens)
            self._thread.start()
            if not self._server.is_up.wait(START_SECONDS_MAX):
                raise InvalidArgument("The HTTP API does not start. Use http=False to go without.")
            if self._is_live:
                self.endpoint.write(self._blobs)
        except BaseException:
            self.stop()
            raise

    @property
    def login_url(self) -> str:
        """A link for a browser, which works once."""
        return f"{self.endpoint.url}/login?code={self._tokens.new_login()}"

    def stop(self) -> None:
        """Listen no more; leave no file that says otherwise."""
        self._withdraw()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS_MAX)
        self._socket.close()

    def _withdraw(self) -> None:
        """Nobody listens: no file may say so."""
        if self._is_live:
            self.endpoint.withdraw(self._blobs)
        self.token_file.delete()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException:  # the query goes on without
            _log.exception("The HTTP API has ended; queries are not concerned")
        finally:
            self._withdraw()

    async def _serve(self) -> None:
        serving = asyncio.create_task(self._server.serve([]))
        letting_in = asyncio.create_task(self._let_in())
        while not (self._server.should_exit or serving.done() or letting_in.done()):
            await asyncio.sleep(0.1)
        self._server.should_exit = True
        letting_in.cancel()
        self._events.close()
        with contextlib.suppress(asyncio.CancelledError):
            await letting_in
        await serving

    async def _let_in(self) -> None:
        while not self._server.started:
            await asyncio.sleep(0.01)
        self._socket.listen(BACKLOG)
        self._socket.setblocking(False)
        self._server.is_up.set()
        await self._door.serve(self._socket, self._server.protocol)


class _Server(uvicorn.Server):
    """Without handlers for signals: those are the program's."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()

    def protocol(self) -> asyncio.Protocol:
        """For one connection."""
        found: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return found


def _bind(port: int) -> socket.socket:
    # no limit: it only listens, and the loop waits
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.set_inheritable(False)
    except OSError as error:
        listening.close()
        raise InvalidArgument(
            f"The HTTP API cannot listen on {HOST}:{port}: {error.strerror}. Give another port as "
            "http=PORT, or http=True for a free one."
        ) from error
    return listening
