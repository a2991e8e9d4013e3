"""Local files of the backend "rocksdb": gone when their worker is, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.harness import Cluster

from anabranch.errors import LocationNotWritable
from anabranch.state.scratch import Scratch

ROOT = Path(__file__).parents[2]

DRIVER = """
import sys, time
from tests.integration.harness import Cluster

with Cluster(sys.argv[1], backend="rocksdb", local_dir=sys.argv[2]) as cluster:
    cluster.run_batch(0, [1, 2, 3])
    print(*cluster.coordinator.pids().values(), flush=True)
    time.sleep(60)
"""


def folders(local: Path) -> list[Path]:
    return list(local.glob("anabranch-*"))


def wait_for(local: Path, count: int) -> None:
    deadline = time.monotonic() + 20
    while len(folders(local)) != count:
        assert time.monotonic() < deadline, f"{len(folders(local))} folders instead of {count}"
        time.sleep(0.02)


def test_stop_and_killed_workers_leave_no_files(tmp_path: Path) -> None:
    local = tmp_path / "local"
    with Cluster(tmp_path / "state", backend="rocksdb", local_dir=str(local)) as cluster:
        cluster.run_batch(0, range(100))
        wait_for(local, 2)
        before = set(folders(local))
        for pid in cluster.coordinator.pids().values():
            os.kill(pid, signal.SIGKILL)
        cluster.run_batch(1, range(100))
        wait_for(local, 2)
        assert before.isdisjoint(folders(local))
    assert folders(local) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_dies_leaves_no_files(tmp_path: Path, ending: signal.Signals) -> None:
    local = tmp_path / "local"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "state"), str(local)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert driver.stdout is not None
    with driver.stdout:
        assert len(driver.stdout.readline().split()) == 2
    assert len(folders(local)) == 2
    driver.send_signal(ending)
    driver.wait(20)
    wait_for(local, 0)


def test_files_of_a_machine_that_went_down_are_swept_up(tmp_path: Path) -> None:
    stale, young = tmp_path / "anabranch-scratch-1", tmp_path / "anabranch-scratch-2"
    alive = Scratch(str(tmp_path))
    for folder in (stale, young):
        folder.mkdir()
        (folder / "owner").touch()
    long_ago = time.time() - 3600
    for folder in (stale, alive.path):
        os.utime(folder, (long_ago, long_ago))
    another = Scratch(str(tmp_path))
    assert set(folders(tmp_path)) == {young, alive.path, another.path}
    alive.close()
    another.close()
    assert folders(tmp_path) == [young]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocationNotWritable, match="local_dir"):
        Scratch(str(tmp_path / "file" / "folder"))
