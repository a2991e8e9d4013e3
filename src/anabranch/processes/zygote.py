"""A process that has imported everything and forks workers: one starts in milliseconds.

Importing Arrow, pandas and Spark costs a second of CPU. Paid when the service starts, it does not
hurt a running query that is rescaled or whose worker has died.
`python -m anabranch.processes.zygote --fd N`: N is a socket to the driver. For each message there,
with two file descriptors (the worker's standard input and the pipe for its address), a worker is
forked. Ends with the driver.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from typing import NoReturn

WORKER = "anabranch.worker.main"
"""Named, not imported: this folder starts workers and knows nothing of what they do."""
ENGINES = ("anabranch.processor.columnar.engine", "anabranch.processor.rows.engine")
PUBLIC = ("anabranch.service", "anabranch.agg", "pyspark.sql.functions")
"""What a module that defines a processor imports, though a worker has no use for it."""
MESSAGE_BYTES = 4096
PR_SET_NAME = 15
ARG_START, ARG_END = 48, 49
"""Fields of /proc/self/stat: where the command line lies in memory."""


def main() -> None:
    """Fork until the driver goes away."""
    parser = argparse.ArgumentParser(prog="anabranch-zygote", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="socket to the driver")
    channel = socket.socket(fileno=parser.parse_args().fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    _import_all()
    gc.freeze()  # the collector must not touch, and so copy, what children share with us
    channel.send(b"{}")
    _serve(channel)


def _import_all() -> None:
    for name in (WORKER, *ENGINES, *PUBLIC):
        importlib.import_module(name)


def _serve(channel: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ, None)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    message, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
                    if not message:
                        return
                    _fork(channel, selector, json.loads(message)["worker"], fds)
                else:
                    _reap(channel, selector, key)


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
    _, status = os.waitpid(key.data, 0)
    code = os.waitstatus_to_exitcode(status)
    channel.send(json.dumps({"ended": key.data, "code": code}).encode())


def _become_worker(worker: str, input_fd: int, ready_fd: int) -> NoReturn:
    """In the child: never return into the zygote's loop."""
    try:
        os.setsid()
        os.dup2(input_fd, 0)
        os.close(input_fd)
        sys.stdin = os.fdopen(0)
        _rename(worker)
        importlib.import_module(WORKER).serve(worker, ready_fd)
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
