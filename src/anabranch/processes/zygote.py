"""A process that has imported everything and forks workers: one starts in milliseconds.

Importing Arrow, pandas and Spark costs a second of CPU. Paid when the service starts, it does not
hurt a running query that is rescaled or whose worker has died.
`python -m anabranch.processes.zygote --fd N`: N is a socket to the driver. For each message there,
with two file descriptors (the pipe for the worker's configuration and the one for its address), a
worker is forked. A third one becomes its standard error. Its standard input is the zygote's: empty.
Ends with the driver, or with the agent that has started it, and after its workers.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import NoReturn

WORKER = "anabranch.worker.main"
"""Named, not imported: this folder starts workers and knows nothing of what they do."""
ENGINES = ("anabranch.processor.columnar.engine", "anabranch.processor.rows.engine")
PUBLIC = ("anabranch.service", "anabranch.agg", "pyspark.sql.functions")
"""What a module that defines a processor imports, though a worker has no use for it."""
MESSAGE_BYTES = 4096
FDS_MAX = 3
GRACE_SECONDS = 6.0
"""Workers end by themselves when the pipe to them does, a little earlier; stopped ones do not."""
PR_SET_NAME = 15
ARG_START, ARG_END = 48, 49
"""Fields of /proc/self/stat: where the command line lies in memory."""


def main() -> None:
    """Fork until the driver goes away."""
    parser = argparse.ArgumentParser(prog="anabranch-zygote", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="socket to the driver")
    # no limit: it waits for its driver, and ends with it
    channel = socket.socket(fileno=parser.parse_args().fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    _import_all()
    gc.freeze()  # the collector must not touch, and so copy, what children share with us
    channel.send(b"{}")
    with selectors.DefaultSelector() as selector:
        _serve(channel, selector)
        _end_all(selector)


def _import_all() -> None:
    for name in (WORKER, *ENGINES, *PUBLIC):
        importlib.import_module(name)


def _serve(channel: socket.socket, selector: selectors.BaseSelector) -> None:
    selector.register(channel, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                try:
                    message, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, FDS_MAX)
                except ConnectionResetError:  # the driver was killed
                    message = b""
                if not message:
                    selector.unregister(channel)
                    return
                _fork(channel, selector, json.loads(message)["worker"], fds)
            else:
                _reap(channel, selector, key)


def _end_all(selector: selectors.BaseSelector) -> None:
    """Nobody is there who could end workers that do not end by themselves."""
    deadline = time.monotonic() + GRACE_SECONDS
    while selector.get_map() and (left := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            selector.unregister(key.fileobj)
    for key in list(selector.get_map().values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(key.data, signal.SIGKILL)


def _fork(
    channel: socket.socket, selector: selectors.BaseSelector, worker: str, fds: list[int]
) -> None:
    pid = os.fork()
    if pid == 0:
        selector.close()
        channel.close()
        _become_worker(worker, *fds)
    for fd in fds:
        os.close(fd)
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
    channel.send(json.dumps({"started": pid}).encode())


def _reap(
    channel: socket.socket, selector: selectors.BaseSelector, key: selectors.SelectorKey
) -> None:
    selector.unregister(key.fileobj)
    os.close(key.fd)
    # no limit: its descriptor has said that it has ended
    _, status = os.waitpid(key.data, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):  # the driver ends just now
        channel.send(json.dumps({"ended": key.data, "code": code}).encode())


def _become_worker(
    worker: str, input_fd: int, ready_fd: int, error_fd: int | None = None
) -> NoReturn:
    """In the child: never return into the zygote's loop."""
    try:
        os.setsid()
        if error_fd is not None:
            os.dup2(error_fd, sys.stderr.fileno())
            os.close(error_fd)
        _rename(worker)
        importlib.import_module(WORKER).serve(worker, input_fd, ready_fd)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(1)


def _rename(worker: str) -> None:
    """Let process listings show the worker, not the zygote that it was forked from."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"anabranch-{worker}".encode()[:15])
    with open("/proc/self/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    start, end = (int(fields[number - 3]) for number in (ARG_START, ARG_END))
    command = f"anabranch\0worker\0{worker}".encode()[: end - start - 1]
    ctypes.memmove(start, command.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
