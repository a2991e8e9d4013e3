"""A host hangs: its kernel answers, its processes do not. Batches go on after its lease."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.hosts.agents import AgentCluster, until
from tests.integration.streaming import Stream

HOST_TIMEOUT = 3.0


def test_a_host_that_is_stopped(tmp_path: Path) -> None:
    """The push ends what waits there; a probe would be answered for as long as it hangs."""
    with AgentCluster(tmp_path / "state", host_timeout=HOST_TIMEOUT) as cluster:
        until(lambda: len(cluster.hosts()) == 2, "both join")
        with Stream(cluster) as stream:
            stream.batches(3)
            pids = [cluster.agents["h1"].process.pid, *cluster.workers_of("h1").values()]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                started = time.monotonic()
                stream.batches(3, HOST_TIMEOUT + 15)
                assert time.monotonic() - started > 1, "it had work there"
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
            stream.batches(3, 15)
