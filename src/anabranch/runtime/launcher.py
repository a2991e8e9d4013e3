"""Starts worker processes on this machine and notices when they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from anabranch.errors import ServiceUnavailable
from anabranch.runtime.config import WorkerConfig

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0


class WorkerHandle(Protocol):
    """A started worker."""

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def pid(self) -> int:
        """Its process id on its host."""

    def stop(self) -> None:
        """End it and wait until it is gone."""

    def kill(self) -> None:
        """End it at once: it does not answer."""


class Launcher(Protocol):
    """Starts workers; one implementation for each place where they can live."""

    def start(self, config: WorkerConfig, on_exit: Callable[[str], None]) -> WorkerHandle:
        """Start a worker and wait until it listens; `on_exit(reason)` is called at its end."""


@dataclass
class LocalWorker:
    """A worker that is a child process of the driver."""

    process: subprocess.Popen[bytes]
    address: str

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def stop(self) -> None:
        """Close its standard input, which asks it to end; insist if it does not."""
        _close_input(self.process)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


class LocalLauncher:
    """Workers as child processes: no cluster needed."""

    def start(self, config: WorkerConfig, on_exit: Callable[[str], None]) -> LocalWorker:
        """Start a process, send it its configuration, wait for its address."""
        read_fd, write_fd = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "anabranch.runtime.worker_process",
                    config.worker,
                    "--ready-fd",
                    str(write_fd),
                ],
                stdin=subprocess.PIPE,
                pass_fds=(write_fd,),
                start_new_session=True,  # Ctrl-C in the terminal is for the driver only
            )
        finally:
            os.close(write_fd)
        try:
            assert process.stdin is not None
            process.stdin.write(config.to_json().encode() + b"\n")
            process.stdin.flush()
            address = _read_address(read_fd, process)
        except BaseException:
            process.kill()
            process.wait()
            _close_input(process)
            raise
        finally:
            os.close(read_fd)
        threading.Thread(
            target=_watch, args=(process, on_exit), name=f"anabranch-{config.worker}", daemon=True
        ).start()
        return LocalWorker(process, address)


def _read_address(read_fd: int, process: subprocess.Popen[bytes]) -> str:
    ready, _, _ = select.select([read_fd], [], [], START_SECONDS_MAX)
    text = os.read(read_fd, 65536) if ready else b""
    if not text:
        code = process.poll()
        reason = "did not start in time" if code is None else f"ended with exit code {code}"
        raise ServiceUnavailable(f"Worker process {process.pid} {reason}; see its messages above.")
    return str(json.loads(text)["address"])


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it is gone already
        process.stdin.close()


def _watch(process: subprocess.Popen[bytes], on_exit: Callable[[str], None]) -> None:
    code = process.wait()
    _close_input(process)
    reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    on_exit(f"process {process.pid} ended ({reason}).")
