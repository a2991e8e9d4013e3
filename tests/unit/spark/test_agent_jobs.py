"""Tasks that carry agents."""

from __future__ import annotations

import subprocess
import sys

from anabranch.model.host import HostFacts
from anabranch.model.ids import HostId
from anabranch.processes.agent_config import AgentConfig
from anabranch.spark.agent_jobs import carry, executor_here
from anabranch.transport.auth import Credentials


def test_a_task_knows_its_executor_by_the_command_line_above_it() -> None:
    """As Spark writes it; a daemon is between the two."""
    inner = "from anabranch.spark.agent_jobs import executor_here; print(*executor_here())"
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    words = ["--driver-url", "spark://d", "--executor-id", "7", "--hostname", "h9", "--cores", "2"]
    command = [sys.executable, "-c", middle, *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == "7 h9\n"
    assert executor_here() == (None, None)


def test_a_task_never_raises() -> None:
    config = AgentConfig(
        "nowhere", Credentials("t"), HostFacts(HostId("h1")), "spark 1", patience_seconds=0
    )
    assert "nowhere" in carry(config)
