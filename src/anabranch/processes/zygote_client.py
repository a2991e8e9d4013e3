"""The driver's end of the zygote: asks it for workers, hears of their ends."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from anabranch.errors import ServiceUnavailable

MESSAGE_BYTES = 4096
START_SECONDS_MAX = 120.0
CLOSE_SECONDS_MAX = 10.0
UNKNOWN_CODE = 255
"""Exit code of a worker whose zygote died with it."""


class Forked:
    """A process that the zygote has forked; like `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = threading.Event()
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        # no limit: the caller's choice, as with `subprocess.Popen`
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self._code is not None
        return self._code

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        return self._code

    def end(self, code: int) -> None:
        """The zygote says so."""
        self._code = code
        self._ended.set()


Replies = queue.Queue["Mapping[str, Any] | None"]


class ZygoteClient:
    """One zygote, started at once so that it is ready when the first worker is asked for."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._is_ready = False
        self._replies: Replies = queue.Queue()
        self._start()

    @staticmethod
    def is_supported() -> bool:
        """Whether this system can pass file descriptors and wait for any process."""
        return sys.platform == "linux" and hasattr(os, "pidfd_open")

    def fork(self, worker: str, *fds: int) -> Forked:
        """A new worker process that has these ends of pipes."""
        with self._lock:
            if self._zygote.poll() is not None:
                self._start()  # it was killed: only a new one can fork
            self._await_ready()
            message = json.dumps({"worker": worker}).encode()
            try:
                socket.send_fds(self._channel, [message], list(fds))
            except OSError as error:
                raise ServiceUnavailable(f"Workers cannot be started: {error}.") from error
            process = self._reply(START_SECONDS_MAX)["process"]
            assert isinstance(process, Forked)
            return process

    def warm_up(self) -> None:
        """Wait until it has imported everything."""
        with self._lock:
            self._await_ready()

    def _await_ready(self) -> None:
        if not self._is_ready:
            self._reply(START_SECONDS_MAX)
            self._is_ready = True

    def close(self) -> None:
        """End the zygote; the workers have ended before."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        try:
            self._zygote.wait(CLOSE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
        self._reader.join(CLOSE_SECONDS_MAX)
        self._channel.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "anabranch.processes.zygote", "--fd", str(theirs.fileno())]
        try:
            self._zygote = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=self._environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the driver only
            )
        finally:
            theirs.close()
        self._channel = ours
        self._is_ready = False
        self._replies = queue.Queue()
        self._reader = threading.Thread(
            target=self._read, args=(ours, self._replies), name="anabranch-nursery", daemon=True
        )
        self._reader.start()

    def _reply(self, timeout: float) -> Mapping[str, Any]:
        reply: Mapping[str, Any] | None = None
        with contextlib.suppress(queue.Empty):
            reply = self._replies.get(timeout=timeout)
        if reply is None:
            raise ServiceUnavailable(
                "The process that starts workers has ended or hangs; see its messages above."
            )
        return reply

    def _read(self, channel: socket.socket, replies: queue.Queue[Mapping[str, Any] | None]) -> None:
        mine: dict[int, Forked] = {}
        while True:
            try:
                # no limit: the zygote's end, or close(), ends it
                text = channel.recv(MESSAGE_BYTES)
            except OSError:
                text = b""
            if not text:
                break
            message = json.loads(text)
            if "ended" in message:
                mine.pop(message["ended"]).end(message["code"])
            elif "started" in message:
                process = mine[message["started"]] = Forked(message["started"])
                replies.put({"process": process})
            else:
                replies.put(message)
        replies.put(None)
        for process in mine.values():  # workers end with their parent
            process.end(UNKNOWN_CODE)
