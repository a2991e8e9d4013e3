"""The lock between processes: one at a time, free again when its holder dies in any way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.durability.store import StateStore
from anabranch.errors import LocationInUse

HOLD = """
import sys
from anabranch.durability.store import StateStore
store = StateStore(sys.argv[1]).open()
sys.stdout.write("held\\n")
sys.stdout.flush()
sys.stdin.readline()
"""


@contextmanager
def holder(location: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the location."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(location)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_process_lets_the_next_one_in(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(LocationInUse, match=f"process {process.pid} on"):
            StateStore(tmp_path).open()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        StateStore(tmp_path).open().close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    store = StateStore(tmp_path).open()
    ready, wait = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"1")
        os.read(wait[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        with pytest.raises(LocationInUse):
            StateStore(tmp_path).open()
        store.close()
        StateStore(tmp_path).open().close()
    finally:
        os.write(wait[1], b"1")
        os.waitpid(child, 0)
        for descriptor in (*ready, *wait):
            os.close(descriptor)


def test_a_replaced_lock_file_is_not_two_locks(tmp_path: Path) -> None:
    first = StateStore(tmp_path).open()
    (tmp_path / "lock").unlink()
    second = StateStore(tmp_path).open()
    with pytest.raises(LocationInUse, match="taken over"):
        first.check_fence()
    second.check_fence()
    first.close()
    second.close()
