"""A process with all that it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from anabranch_bench.probes import process_tree


class TestFamily:
    """Real processes: a parent that has started a child in a session of its own, as workers are."""

    PARENT = """
import subprocess, sys, time
child = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(100)"]
subprocess.Popen(child, start_new_session=True)
time.sleep(100)
"""

    def test_all_end_at_once(self) -> None:
        parent = subprocess.Popen(
            [sys.executable, "-c", self.PARENT], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert parent.stdout is not None
            parent.stdout.readline()  # the child is up
            processes = process_tree.family(parent.pid)
            assert len(processes) == 2
            assert process_tree.freeze(parent.pid) == processes
            assert self._states(processes) == {"T"}
            process_tree.send(processes, signal.SIGCONT)
            process_tree.kill(parent.pid)
            assert process_tree.family(parent.pid) == set()
            assert self._states(processes) <= {"Z", "gone"}
        finally:
            parent.kill()
            parent.wait()
            assert parent.stdout is not None
            parent.stdout.close()

    def test_an_id_that_is_used_again_is_left_alone(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        try:
            process_tree.send({(process.pid, 1)}, signal.SIGKILL)
            time.sleep(0.1)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()

    def _states(self, processes: set[process_tree.Process]) -> set[str]:
        found = set()
        for pid, _ in processes:
            try:
                stat = (process_tree.PROC / str(pid) / "stat").read_text()
                found.add(stat.rpartition(")")[2].split()[0])
            except OSError:
                found.add("gone")
        return found
