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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import HostId
from anabranch.processes.environment import worker_environment
from anabranch.processes.error_tail import ErrorTail
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processes.zygote_client import ZygoteClient

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
DUMP_SECONDS = 0.5
"""For the stacks of a process that does not answer."""
CLOSED = -1
DUMP_SIGNAL = signal.SIGUSR2


class StartedWorker(Protocol):
    """A started worker; none of its methods waits without a limit."""

    @property
    def host(self) -> HostId:
        """Where it runs."""

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def pid(self) -> int:
        """Its process id on its host."""

    def stop(self) -> None:
        """End it and wait until it is gone, or its host is."""

    def kill(self) -> None:
        """End it at once: it does not answer."""

    def dump(self) -> None:
        """Let it write the stacks of its threads to standard error, whatever it does."""


class Launcher(Protocol):
    """Starts workers; one implementation for each place where they can live."""

    def start(
        self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]
    ) -> StartedWorker:
        """Start a worker on a host and wait until it listens.

        `on_exit(reason)` is called at its end, or when its host is lost.
        """

    def close(self) -> None:
        """Nothing will be started any more."""


class StartedProcess(Protocol):
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

    process: StartedProcess
    input_fd: int
    """Write end of the pipe that its configuration comes by, and that ends with the driver."""
    address: str
    host: HostId
    errors: ErrorTail | None = None
    """What it writes to standard error, if that is not this process's."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def stop(self) -> None:
        """Close its pipe, which asks it to end; insist if it does not."""
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
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it
            self.process.wait(STOP_SECONDS_MAX)

    def dump(self) -> None:
        """The worker has a handler in C for this signal: it needs no lock of Python's."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, DUMP_SIGNAL)
            time.sleep(DUMP_SECONDS)


class LocalLauncher:
    """Workers on this machine: the driver's, or an agent's.

    Forked by a zygote where the system can do that (Linux), else started as processes of their own.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, keeps_errors: bool = False
    ) -> None:
        """`environment` is that of the workers; default: this process's.

        `keeps_errors`: the reason of an end has the last lines of standard error.
        """
        self._environment = dict(environment or worker_environment())
        self._keeps_errors = keeps_errors
        supported = ZygoteClient.is_supported()
        self._nursery = ZygoteClient(self._environment) if supported else None

    def start(
        self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]
    ) -> LocalWorker:
        """Start a process, send it its configuration, wait for its address."""
        input_read, input_write = os.pipe()
        ready_read, ready_write = os.pipe()
        errors, error_fds = None, []
        if self._keeps_errors:
            error_read, error_write = os.pipe()
            errors, error_fds = ErrorTail(error_read, config.worker), [error_write]
        try:
            process = self._spawn(config.worker, input_read, ready_write, *error_fds)
        except BaseException:
            os.close(input_write)
            os.close(ready_read)
            raise
        finally:
            for fd in (input_read, ready_write, *error_fds):
                os.close(fd)
        worker = LocalWorker(process, input_write, "", host, errors)
        try:
            os.write(input_write, config.to_json().encode() + b"\n")
            worker.address = _read_address(ready_read, worker)
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

    def warm_up(self) -> None:
        """Wait until workers start in milliseconds, where they are forked."""
        if self._nursery is not None:
            self._nursery.warm_up()

    def close(self) -> None:
        """End the zygote."""
        if self._nursery is not None:
            self._nursery.close()

    def _spawn(
        self, worker: str, input_fd: int, ready_fd: int, error_fd: int | None = None
    ) -> StartedProcess:
        if self._nursery is not None:
            fds = (input_fd, ready_fd) if error_fd is None else (input_fd, ready_fd, error_fd)
            return self._nursery.fork(worker, *fds)
        module = "anabranch.worker.main"
        return subprocess.Popen(
            [
                *(sys.executable, "-m", module, worker),
                *("--input-fd", str(input_fd), "--ready-fd", str(ready_fd)),
            ],
            stdin=subprocess.DEVNULL,  # user code that reads it must not wait
            stderr=error_fd,
            pass_fds=(input_fd, ready_fd),
            env=self._environment,
            start_new_session=True,  # Ctrl-C in the terminal is for the driver only
        )


def _read_address(read_fd: int, worker: LocalWorker) -> str:
    ready, _, _ = select.select([read_fd], [], [], START_SECONDS_MAX)
    # no limit: `select` has said that something is there
    text = os.read(read_fd, 65536) if ready else b""
    if not text:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its end is about to be heard of
            worker.process.wait(1.0 if ready else 0.0)
        code = worker.process.poll()
        reason = "did not start in time" if code is None else f"ended with exit code {code}"
        raise ServiceUnavailable(f"Worker process {worker.pid} {reason}{_messages(worker)}")
    return str(json.loads(text)["address"])


def _messages(worker: LocalWorker) -> str:
    """Its last lines, or where they are."""
    if worker.errors is None:
        return "; see its messages above."
    last = worker.errors.last()
    return f". Its last messages:\n{last}" if last else ". It wrote nothing to standard error."


def _watch(worker: LocalWorker, on_exit: Callable[[str], None]) -> None:
    code = worker.process.wait()  # no limit: it watches for as long as the process lives
    worker.close_input()
    reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    last = "" if worker.errors is None else worker.errors.last()
    on_exit(
        f"process {worker.pid} ended ({reason})." + (f" Last messages:\n{last}" if last else "")
    )
