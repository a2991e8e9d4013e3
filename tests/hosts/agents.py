"""Agents as processes, each a host of its own on 127.0.0.x."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.integration.streaming import MovingCluster

from anabranch.coordinator.joined_hosts import JoinedHosts

ROOT = Path(__file__).parents[2]
WAIT = 60

COMMAND = """
import signal, sys
from anabranch.cli.main import main

# Tests that run in the background of a shell ignore SIGINT, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""
"""The command `anabranch`."""


class Agent:
    """A process of `anabranch agent`."""

    def __init__(
        self, cluster: AgentCluster, number: int, *options: str, join: str | None = None
    ) -> None:
        """`join` is the coordinator's address, or that of a cable to it."""
        self.host = f"h{number}"
        self.address = f"127.0.0.{number + 1}"
        self.log = cluster.folder.with_name(f"agent-{number}-{time.monotonic_ns()}.log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", COMMAND, "agent"),
                    *("--join", join or cluster.coordinator.address),
                    *("--token-file", str(cluster.token_file)),
                    *("--host", self.host, "--address", self.address),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )

    def said(self) -> str:
        """All that it has written."""
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, not to its workers."""
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """However it is, it is gone afterwards."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)


class AgentCluster(MovingCluster):
    """A real coordinator whose workers are on hosts with agents."""

    def __init__(
        self,
        folder: Path,
        agents: int = 2,
        workers: int = 2,
        capacities: dict[int, int] | None = None,
        expect: int | None = None,
        port: int = 0,
        **settings: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.token_file = folder.with_name(f"{folder.name}.token")
        self.agents: dict[str, Agent] = {}
        self._started: list[Agent] = []
        source = JoinedHosts(expect=expect or agents, port=port, token_file=str(self.token_file))
        super().__init__(folder, workers, hosts=source, **settings)
        for number in range(1, agents + 1):
            capacity = (capacities or {}).get(number)
            self.add(number, *(() if capacity is None else ("--capacity", str(capacity))))

    def add(self, number: int, *options: str, join: str | None = None) -> Agent:
        """One more host, or another agent of one."""
        agent = Agent(self, number, *options, join=join)
        self.agents[agent.host] = agent
        self._started.append(agent)
        return agent

    def workers_of(self, host: str) -> dict[str, int]:
        """Process ids of the workers on a host."""
        shown = self.coordinator.status()["workers"]
        return {name: each["pid"] for name, each in shown.items() if each["host"] == host}

    def is_lost(self, host: str) -> bool:
        """Whether the coordinator has given a host up."""
        return host in self.coordinator.hosts.registry.lost()

    def hosts(self) -> dict[str, Any]:
        """As status() shows them."""
        shown: dict[str, Any] = self.coordinator.status()["hosts"]
        return shown

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            for agent in self._started:
                agent.end()


def until(condition: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    """Wait for something."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """What takes longer is wrong."""
    began = time.monotonic()
    yield
    taken = time.monotonic() - began
    assert taken <= seconds, f"it took {taken:.1f} s"
