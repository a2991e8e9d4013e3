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
    "queue that blocks": "item = queue.get(True)",
    "queue that blocks by name": "item = queue.get(block=True)",
    "lock that blocks": "self._lock.acquire(True)",
    "lock that blocks by name": "self._lock.acquire(blocking=True)",
    "perhaps none": "event.wait(None if known else 1)",
    "none by and": "event.wait(timeout=known and None)",
    "child": "os.waitpid(pid, 0)",
    "line of a pipe": "line = process.stdout.readline()",
    "lines of a pipe": "for line in process.stdout: print(line)",
    "end of a pipe": "text = process.stderr.read()",
    "bytes of a pipe": "os.read(descriptor, 10)",
    "map of a pool": "done = list(pool.map(work, items))",
    "end of a pool": "self._pool.shutdown()",
    "block of a pool": "with futures.ThreadPoolExecutor(4) as pool: pass",
    "end of a server": "server.shutdown(wait=True)",
    "file lock": "fcntl.flock(descriptor, fcntl.LOCK_EX)",
    "dialling": "sock.connect((host, 80))",
    "sending": "sock.sendall(data)",
}

IN_FUNCTIONS = {
    "parameter": "def work(limit: float | None) -> None:\n    event.wait(limit)",
    "variable": "def work():\n    limit = None\n    event.wait(limit)",
    "declared": "def work():\n    limit: float | None = 1\n    event.wait(limit)",
    "chosen": "def work():\n    limit = 1 if some else None\n    event.wait(limit)",
}
"""Limits that are none at some time."""

FINE = {
    "event": "event.wait(5)",
    "named": "event.wait(timeout=seconds)",
    "thread": "thread.join(STOP_SECONDS)",
    "text": "', '.join()",
    "path": "os.path.join()",
    "dictionary": "known.get(name)",
    "optional key": "def work(key: str | None) -> None: known.get(key)",
    "select": "select.select([fd], [], [], 1.0)",
    "condition": "changed.wait_for(lambda: done, 5)",
    "reason": "event.wait()  # no limit: the process ends with it",
    "reason above": "# no limit: the process ends with it\nevent.wait()",
    "process": "subprocess.run(['ls'], timeout=5)",
    "lock": "lock.acquire(blocking=False)",
    "lock with a limit": "lock.acquire(True, 5)",
    "queue with a limit": "queue.get(True, 5)",
    "queue that does not block": "queue.get(False)",
    "one of two": "event.wait(1 if known else 5)",
    "parameter": "def work(limit: float) -> None: event.wait(limit)",
    "child": "os.waitpid(pid, os.WNOHANG)",
    "file": "line = file.readline()",
    "map of rows": "rows.map(work)",
    "end of a pool": "pool.shutdown(wait=False, cancel_futures=True)",
    "end of a socket": "sock.shutdown(socket.SHUT_RDWR)",
    "file lock": "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "end of a file lock": "fcntl.flock(descriptor, fcntl.LOCK_UN)",
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


@pytest.mark.parametrize("name", IN_FUNCTIONS)
def test_a_limit_that_may_be_none_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(f"{IN_FUNCTIONS[name]}\n")
    done = check(file)
    assert done.returncode == 1, name
    assert "wait() without a limit" in done.stdout


def test_what_ends_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "fine.py"
    file.write_text("\n".join(FINE.values()) + "\n")
    done = check(file)
    assert not done.returncode, done.stdout


def test_the_package_has_no_call_without_an_end() -> None:
    done = check()
    assert not done.returncode, done.stdout
