"""A real S3 server in a process of its own, and a proxy before it that spoils what it is told to.

The server is moto's; without `authenticate` it takes any credentials.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

START_SECONDS_MAX = 60
BUCKET = "states"
KEYS = {"access_key": "somebody", "secret_key": "secret"}


@dataclass
class S3Server:
    """Where the server listens."""

    host: str
    port: int

    def location(self, prefix: str | None = None, bucket: str = BUCKET, **options: Any) -> str:
        """A state location on this server; a new one unless a prefix is given."""
        asked = {"endpoint": f"http://{self.host}:{self.port}", **KEYS, **options}
        return f"s3://{bucket}/{prefix or uuid.uuid4().hex}?{urlencode(asked)}"

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """As the server's administrator."""
        headers = {"Content-Type": "text/plain", "Authorization": _AUTHORIZATION}
        url = f"http://{self.host}:{self.port}{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers, method=method), timeout=10
        ) as answer:
            return bytes(answer.read())

    @contextlib.contextmanager
    def authenticating(self) -> Iterator[None]:
        """Meanwhile credentials and policies are checked."""
        self.request("POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self.request("POST", "/moto-api/reset-auth", b"inf")

    def new_user(self, *actions: str) -> dict[str, str]:
        """Credentials of a user who may do only this; call it while nothing is checked."""
        name = f"user-{uuid.uuid4().hex[:8]}"
        policy = {"Effect": "Allow", "Action": actions, "Resource": "*"}
        self._iam("CreateUser", UserName=name)
        self._iam(
            "PutUserPolicy",
            UserName=name,
            PolicyName="what-it-may-do",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [policy]}),
        )
        answer = self._iam("CreateAccessKey", UserName=name)
        return {
            "access_key": _between(answer, "<AccessKeyId>", "</AccessKeyId>"),
            "secret_key": _between(answer, "<SecretAccessKey>", "</SecretAccessKey>"),
        }

    def _iam(self, action: str, **parameters: str) -> str:
        form = urlencode({"Action": action, "Version": "2010-05-08", **parameters}).encode()
        scope = _AUTHORIZATION.replace("/s3/", "/iam/")
        headers = {"Authorization": scope, "Content-Type": "application/x-www-form-urlencoded"}
        request = urllib.request.Request(f"http://{self.host}:{self.port}/", form, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bytes(answer.read()).decode()


_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=admin/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


@functools.cache
def server() -> S3Server:
    """One server for all tests of this process; it ends with it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = S3Server("127.0.0.1", probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", found.host, "-p", str(found.port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_end, process)
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            found.request("PUT", f"/{BUCKET}")
            return found
        except OSError:
            assert process.poll() is None, "the S3 server has ended"
            assert time.monotonic() < deadline, "the S3 server does not start"
            time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


# -- faults --


@dataclass
class Fault:
    """What happens to the next `times` requests whose method and path fit."""

    what: str
    """status, drop (not passed on), lose (passed on, the answer is lost), cut (half of the
    answer's body), delay (passed on late), stall (never answered)."""
    method: str = ""
    path: str = ""
    times: int = 1
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 0.0
    until: threading.Event | None = None
    """A delay ends when this is set."""
    hits: int = 0

    def fits(self, method: str, path: str) -> bool:
        return self.hits < self.times and self.method in ("", method) and self.path in path


@dataclass
class Proxy(S3Server):
    """Passes requests on, except as its faults say."""

    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Method and path of every request."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def spoil(self, what: str, **more: Any) -> Fault:
        """From now on."""
        fault = Fault(what, **more)
        with self.lock:
            self.faults.append(fault)
        return fault

    def mend(self) -> None:
        """Everything works again."""
        with self.lock:
            self.faults.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """What is to happen to a request."""
        with self.lock:
            self.seen.append(f"{method} {path}")
            for fault in self.faults:
                if fault.fits(method, path):
                    fault.hits += 1
                    return fault
            return None


@contextlib.contextmanager
def proxy() -> Iterator[Proxy]:
    """A proxy before the server."""
    target = server()
    listener = _Listener(("127.0.0.1", 0), _Handler)
    listener.target = target
    host, port = listener.server_address[:2]
    listener.proxy = Proxy(str(host), int(port))
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield listener.proxy
    finally:
        listener.ending.set()
        listener.shutdown()
        listener.server_close()
        thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    proxy: Proxy
    target: S3Server

    def __init__(self, *arguments: Any) -> None:
        self.ending = threading.Event()
        super().__init__(*arguments)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def _any(self) -> None:
        body = self._body()
        fault = self.server.proxy.take(self.command, self.path)
        what = fault.what if fault else ""
        if fault is not None and what in ("status", "drop", "stall", "delay"):
            if what == "status":
                self._refuse(fault)
                return
            (fault.until or self.server.ending).wait(fault.seconds)
            if what != "delay":
                self.close_connection = True
                return
        status, headers, content = self._pass_on(body)
        if what == "lose":
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if what == "cut":
            self.close_connection = True
            content = content[: len(content) // 2]
        self.wfile.write(content)

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _any

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def _pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.server.target
        connection = http.client.HTTPConnection(target.host, target.port)
        try:
            dropped = ("expect", "transfer-encoding", "content-length")
            headers = {n: v for n, v in self.headers.items() if n.lower() not in dropped}
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            kept = [h for h in answer.getheaders() if h[0].lower() not in _HOP_BY_HOP]
            if not any(name.lower() == "content-length" for name, _ in kept):
                kept.append(("Content-Length", str(len(content))))
            return answer.status, kept, content
        finally:
            connection.close()

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>"
        content = b"" if self.command == "HEAD" else text.encode()
        self.send_response_only(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "server", "date"})
