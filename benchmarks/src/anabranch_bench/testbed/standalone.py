"""A standalone Spark cluster, from the pip package: a master, and a Spark worker on each host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from anabranch_bench.testbed.hosts import Host

START_SECONDS = 120.0
PATIENCE_SECONDS = 0.1
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs that live for minutes: the optimising compiler costs more than it saves."""

MASTER, WORKER = "deploy.master.Master", "deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
"""Parts of command lines, for `Host.find`."""


class StandaloneCluster:
    """A context manager; `url` is for `SparkSession.builder.master`.

    The processes end with their hosts, so this only sees to an orderly end.
    """

    def __init__(self, master: Host, workers: Sequence[Host], folder: Path, cores: int = 2) -> None:
        self.master, self.workers = master, workers
        self._folder, self._cores = folder, cores
        self.url = ""
        self._port = "0"
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> StandaloneCluster:
        self.start_master()
        for host in self.workers:
            self.start_worker(host)
        self.wait_for_workers(len(self.workers))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in (*self.workers, self.master):
            host.kill(EXECUTOR)
            host.kill(WORKER)
            host.kill(MASTER)
        for process in self._running:
            process.wait(20)

    def start_master(self) -> None:
        """The second time on the port of the first time: workers find it again."""
        log = self._folder / f"{self.master.name}-master.log"
        seen = len(_matches(r"I have been elected", log))
        words = ["--host", self.master.known_as, "--port", self._port, "--webui-port", "0"]
        self._start(self.master, MASTER, words, log)
        _wait(lambda: len(_matches(r"I have been elected", log)) > seen, "The master starts", log)
        self.url = _matches(r"spark://[\w.]+:\d+", log)[-1]
        self._port = self.url.rsplit(":", 1)[1]

    def start_worker(self, host: Host) -> None:
        """Offer the host's cores to Spark."""
        words = f"--host {host.known_as} --webui-port 0 --cores {self._cores} --memory 1g".split()
        words += ["--work-dir", str(host.disk / "work"), self.url]
        self._start(host, WORKER, words, self._folder / f"{host.name}-worker.log")

    def wait_for_workers(self, count: int) -> None:
        """So many have registered since the master started."""
        log = self._folder / f"{self.master.name}-master.log"
        pattern = r"Registering worker"
        _wait(lambda: len(_matches(pattern, log)) >= count, f"{count} workers register", log)

    def _start(self, host: Host, name: str, words: Sequence[str], log: Path) -> None:
        environment = {
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_LOCAL_DIRS": str(host.disk),
            "SPARK_LOG_DIR": str(self._folder),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.{name}", *words]
        self._running.append(host.start(command, log, environment))


def spark_home() -> Path:
    """Where pip has put Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def _matches(pattern: str, log: Path) -> list[str]:
    return re.findall(pattern, log.read_text(errors="replace")) if log.exists() else []


def _wait(is_so: Callable[[], bool], what: str, log: Path) -> None:
    limit = time.monotonic() + START_SECONDS
    while not is_so():
        if time.monotonic() > limit:
            tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise TimeoutError(f"{what}: not within {START_SECONDS:.0f} s. Its log ends:\n{tail}")
        time.sleep(PATIENCE_SECONDS)
