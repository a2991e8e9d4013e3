"""Starts worker processes on this machine and notices when they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from anabranch.errors import ServiceUnavailable
from anabranch.processes.environment import worker_environment
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processes.zygote_client import ZygoteClient

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
CLOSED = -1


class StartedWorker(Protocol):
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

    def start(self, config: WorkerConfig, on_exit: Callable[[str], None]) -> StartedWorker:
        """Start a worker and wait until it listens; `on_exit(reason)` is called at its end."""

    def close(self) -> None:
        """Nothing will be started any more."""


class Process(Protocol):
    """What both ways of starting a process give; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """Process id."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code, minus the signal if it was killed."""

    def poll(self) -> int | None:
        """Its exit code if it has ended."""


@dataclass
class LocalWorker:
    """A worker on this machine."""

    process: Process
    input_fd: int
    """Write end of its standard input."""
    address: str

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def stop(self) -> None:
        """Close its standard input, which asks it to end; insist if it does not."""
        self.close_input()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def close_input(self) -> None:
        """Once: the number may belong to somebody else afterwards."""
        fd, self.input_fd = self.input_fd, CLOSED
        if fd != CLOSED:
            os.close(fd)

    def kill(self) -> None:
        """kill -9."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


class LocalLauncher:
    """Workers on the driver's machine: no cluster needed.

    Forked by a zygote where the system can do that (Linux), else started as processes of their own.
    """

    def __init__(self) -> None:
        self._nursery = ZygoteClient() if ZygoteClient.is_supported() else None

    def start(self, config: WorkerConfig, on_exit: Callable[[str], None]) -> LocalWorker:
        """Start a process, send it its configuration, wait for its address."""
        input_read, input_write = os.pipe()
        ready_read, ready_write = os.pipe()
        try:
            process = self._spawn(config.worker, input_read, ready_write)
        except BaseException:
            os.close(input_write)
            os.close(ready_read)
            raise
        finally:
            os.close(input_read)
            os.close(ready_write)
        worker = LocalWorker(process, input_write, "")
        try:
            os.write(input_write, config.to_json().encode() + b"\n")
            worker.address = _read_address(ready_read, process)
        except BaseException:
            worker.kill()
            worker.close_input()
            raise
        finally:
            os.close(ready_read)
        threading.Thread(
            target=_watch, args=(worker, on_exit), name=f"anabranch-{config.worker}", daemon=True
        ).start()
        return worker

    def close(self) -> None:
        """End the zygote."""
        if self._nursery is not None:
            self._nursery.close()

    def _spawn(self, worker: str, input_fd: int, ready_fd: int) -> Process:
        if self._nursery is not None:
            return self._nursery.fork(worker, input_fd, ready_fd)
        module = "anabranch.worker.main"
        return subprocess.Popen(
            [sys.executable, "-m", module, worker, "--ready-fd", str(ready_fd)],
            stdin=input_fd,
            pass_fds=(ready_fd,),
            env=worker_environment(),
            start_new_session=True,  # Ctrl-C in the terminal is for the driver only
        )


def _read_address(read_fd: int, process: Process) -> str:
    ready, _, _ = select.select([read_fd], [], [], START_SECONDS_MAX)
    text = os.read(read_fd, 65536) if ready else b""
    if not text:
        code = process.poll()
        reason = "did not start in time" if code is None else f"ended with exit code {code}"
        raise ServiceUnavailable(f"Worker process {process.pid} {reason}; see its messages above.")
    return str(json.loads(text)["address"])


def _watch(worker: LocalWorker, on_exit: Callable[[str], None]) -> None:
    code = worker.process.wait()
    worker.close_input()
    reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    on_exit(f"process {worker.pid} ended ({reason}).")
