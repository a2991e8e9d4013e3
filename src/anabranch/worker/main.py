"""Entry point of a worker process: `python -m anabranch.worker.main <worker id>`.

Configuration comes as one line through a pipe; the address goes back through another. The first
then stays open for as long as the driver lives: when it ends, for whatever reason, so does the
worker. It is not standard input: user code that reads that finds its end at once.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import signal
import threading
from typing import TextIO

from anabranch.durability.blobs import BlobStore
from anabranch.processes.launcher import DUMP_SIGNAL
from anabranch.processes.worker_config import WorkerConfig
from anabranch.state.access import OTHERS
from anabranch.transport.access import Access
from anabranch.transport.server import Server
from anabranch.transport.watch import watch
from anabranch.worker.worker import Worker

PARENT_CHECK_SECONDS = 1.0
GRACE_SECONDS = 5.0


def main() -> None:
    """A worker that was started as a process of its own."""
    parser = argparse.ArgumentParser(prog="anabranch-worker", description=__doc__)
    parser.add_argument("worker", help="worker id, shown in process listings")
    parser.add_argument("--input-fd", type=int, required=True, help="pipe with the configuration")
    parser.add_argument("--ready-fd", type=int, required=True, help="pipe for the address")
    arguments = parser.parse_args()
    serve(arguments.worker, arguments.input_fd, arguments.ready_fd)


def serve(worker_id: str, input_fd: int, ready_fd: int) -> None:
    """Serve until the driver goes away."""
    logging.basicConfig(
        level=os.environ.get("ANABRANCH_LOG_LEVEL", "WARNING"),
        format=f"%(asctime)s %(levelname)s anabranch {worker_id} %(message)s",
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle

    faulthandler.register(DUMP_SIGNAL)

    os.set_inheritable(input_fd, False)  # what user code starts must not keep it open
    driver = os.fdopen(input_fd)
    config = WorkerConfig.from_json(driver.readline())
    if not config.shared:  # also for files that libraries make: RocksDB, user code
        os.umask(os.umask(OTHERS) | OTHERS)
    blobs = BlobStore(config.location, fsync=config.fsync, shared=config.shared)
    worker = Worker(config, blobs)
    access = Access(config.credentials.token)
    server = Server(config.host, access, worker, config.certificate)
    worker.listens_at(server.address)
    if config.coordinator is not None:
        watch(config.coordinator, config.credentials, f"worker {worker_id}")
    with os.fdopen(ready_fd, "w") as ready:
        ready.write(json.dumps({"address": server.address, "pid": os.getpid()}))
    gc.freeze()
    _wait_for_driver(driver)
    _end(server, worker)


def _wait_for_driver(driver: TextIO) -> None:
    """Return when the driver closes its end of the pipe or is no longer our parent."""
    parent = os.getppid()
    ended = threading.Event()

    def read_to_end() -> None:
        driver.read()
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
