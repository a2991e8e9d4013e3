"""Entry point of a worker process: `python -m anabranch.worker.main <worker id>`.

Configuration comes as one line on standard input; the address goes back through a pipe. Standard
input then stays open for as long as the driver lives: when it ends, for whatever reason, so does
the worker.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import threading

from anabranch.durability.blobs import BlobStore
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.server import Server
from anabranch.worker.worker import Worker

PARENT_CHECK_SECONDS = 1.0
GRACE_SECONDS = 5.0


def main() -> None:
    """A worker that was started as a process of its own."""
    parser = argparse.ArgumentParser(prog="anabranch-worker", description=__doc__)
    parser.add_argument("worker", help="worker id, shown in process listings")
    parser.add_argument("--ready-fd", type=int, required=True, help="pipe for the address")
    arguments = parser.parse_args()
    serve(arguments.worker, arguments.ready_fd)


def serve(worker_id: str, ready_fd: int) -> None:
    """Serve until the driver goes away."""
    logging.basicConfig(
        level=os.environ.get("ANABRANCH_LOG_LEVEL", "WARNING"),
        format=f"%(asctime)s %(levelname)s anabranch {worker_id} %(message)s",
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle

    config = WorkerConfig.from_json(sys.stdin.readline())
    worker = Worker(config, BlobStore(config.location, fsync=config.fsync))
    server = Server(config.host, config.token, worker)
    worker.listens_at(server.address)
    with os.fdopen(ready_fd, "w") as ready:
        ready.write(json.dumps({"address": server.address, "pid": os.getpid()}))
    gc.freeze()
    _wait_for_driver()
    _end(server, worker)


def _wait_for_driver() -> None:
    """Return when the driver closes our standard input or is no longer our parent."""
    parent = os.getppid()
    ended = threading.Event()

    def read_to_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read_to_end, name="anabranch-driver-watch", daemon=True).start()
    while not ended.wait(PARENT_CHECK_SECONDS) and os.getppid() == parent:
        pass


def _end(server: Server, worker: Worker) -> None:
    # A call that hangs (user code, a dead store) must not keep the process alive.
    threading.Timer(GRACE_SECONDS, lambda: os._exit(1)).start()
    worker.close()
    server.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
