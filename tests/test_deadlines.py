"""The check that no call lasts for ever finds what it should find, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PLANTED = {
    "event": "event.wait()",
    "event with none": "event.wait(timeout=None)",
    "thread": "self._thread.join()",
    "future": "pool.submit(work).result()",
    "queue": "item = queue.get()",
    "condition": "changed.wait_for(lambda: done)",
    "lock": "self._lock.acquire()",
    "process": "subprocess.run(['ls'], check=True)",
    "pipe": "out, err = process.communicate()",
    "connection": "socket.create_connection((host, 80))",
    "socket": "channel = socket.socket()",
    "select": "select.select([fd], [], [])",
    "flight": "client.do_action(action)",
    "connecting": "client = flight.FlightClient(address)",
    "futures": "concurrent.futures.wait(some)",
    "no reason": "event.wait()  # no limit:",
}

FINE = {
    "event": "event.wait(5)",
    "named": "event.wait(timeout=seconds)",
    "thread": "thread.join(STOP_SECONDS)",
    "text": "', '.join()",
    "path": "os.path.join()",
    "dictionary": "known.get(name)",
    "select": "select.select([fd], [], [], 1.0)",
    "condition": "changed.wait_for(lambda: done, 5)",
    "reason": "event.wait()  # no limit: the process ends with it",
    "reason above": "# no limit: the process ends with it\nevent.wait()",
    "process": "subprocess.run(['ls'], timeout=5)",
    "lock": "lock.acquire(blocking=False)",
}


def check(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "check-deadlines"), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", PLANTED)
def test_what_may_last_for_ever_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(f"def work():\n    {PLANTED[name]}\n")
    done = check(file)
    assert done.returncode == 1, name
    assert f"{file}:2: " in done.stdout


def test_what_ends_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "fine.py"
    file.write_text("\n".join(FINE.values()) + "\n")
    done = check(file)
    assert not done.returncode, done.stdout


def test_the_package_has_no_call_without_an_end() -> None:
    done = check()
    assert not done.returncode, done.stdout
