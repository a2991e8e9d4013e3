"""Savepoints of a running service, restored into others; killed at the awkward moments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.harness import KEYSPACE, Cluster, Oracle

from anabranch.cli.main import main
from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.savepoint import (
    Savepoint,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    retired,
)
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError, EpochGap, InvalidArgument, StateMismatch
from anabranch.model.keyspace import KeySpace

KEYS = range(50)
ROOT = Path(__file__).parents[2]


def run(cluster: Cluster, oracle: Oracle, epochs: range, query: str = "query-1") -> None:
    for epoch in epochs:
        keys = [key for key in KEYS if (key + epoch) % 3]
        assert cluster.run_batch(epoch, keys, query=query) == oracle.run_batch(keys)


def restored(folder: Path, savepoint: str) -> None:
    with StateStore(str(folder)).open() as store:
        restore_savepoint(store, savepoint, KEYSPACE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Oracle]:
    """A location with a savepoint as of batch 20, eight batches before the last; the oracle."""
    folder, oracle = tmp_path_factory.mktemp("made") / "state", Oracle()
    with Cluster(folder, workers=2) as cluster:
        run(cluster, oracle, range(21))
        saved = dict(oracle.counts)
        savepoint = create_savepoint(cluster.store, cluster.coordinator.store_lock, "first")
        assert savepoint.epochs == {"counts": 20}
        # More than enough epochs for garbage collection.
        run(cluster, oracle, range(21, 60))
    oracle.counts = saved
    return folder, oracle


def copied(made: tuple[Path, Oracle], folder: Path) -> tuple[str, Oracle]:
    """The savepoint alone, elsewhere: the rest is not needed."""
    source, oracle = made
    shutil.copytree(source / "savepoints" / "first", folder / "taken")
    again = Oracle()
    again.counts = dict(oracle.counts)
    return str(folder / "taken"), again


def test_restored_with_other_parallelism_and_a_new_checkpoint(
    made: tuple[Path, Oracle], tmp_path: Path
) -> None:
    savepoint, oracle = copied(made, tmp_path)
    restored(tmp_path / "new", savepoint)
    shutil.rmtree(savepoint)
    before = dict(oracle.counts)
    with Cluster(tmp_path / "new", workers=3) as cluster:
        assert cluster.coordinator.status()["operators"]["counts"]["in_memory"] == 0.0
        run(cluster, oracle, range(1), query="another")
    # Restarted, the first batch may run again: from what the savepoint brought.
    oracle.counts = before
    with Cluster(tmp_path / "new", workers=1) as cluster:
        run(cluster, oracle, range(20), query="another")


def test_goes_on_after_the_savepoints_batch(made: tuple[Path, Oracle], tmp_path: Path) -> None:
    savepoint, oracle = copied(made, tmp_path)
    restored(tmp_path / "new", savepoint)
    with Cluster(tmp_path / "new", workers=2) as cluster:
        with pytest.raises(EpochGap, match=r"as of batch 20.*continues at batch 21"):
            cluster.run_batch(22, KEYS)
        run(cluster, oracle, range(21, 24))
    # It is restored once: the program may say so each time.
    restored(tmp_path / "new", savepoint)
    with Cluster(tmp_path / "new", workers=2) as cluster:
        run(cluster, oracle, range(24, 26))


def test_what_a_savepoint_brought_outlives_snapshots(
    made: tuple[Path, Oracle], tmp_path: Path
) -> None:
    """A checkpoint in full replaces files of some key groups, and of those only."""
    savepoint, oracle = copied(made, tmp_path)
    restored(tmp_path / "new", savepoint)
    with Cluster(tmp_path / "new", workers=2, checkpoint="full") as cluster:
        for epoch in range(21, 24):  # few keys: most key groups do not change
            keys = KEYS[:3]
            assert cluster.run_batch(epoch, keys) == oracle.run_batch(keys)
    # The savepoint is not needed any more, also not to say that it was restored.
    shutil.rmtree(savepoint)
    restored(tmp_path / "new", savepoint)
    with Cluster(tmp_path / "new", workers=3) as cluster:
        run(cluster, oracle, range(24, 28))


def test_a_copy_does_not_touch_what_is_there(made: tuple[Path, Oracle], tmp_path: Path) -> None:
    savepoint = Savepoint.open(copied(made, tmp_path)[0])
    precious = tmp_path / "backups" / "precious"
    precious.parent.mkdir()
    precious.write_text("mine")
    with pytest.raises(InvalidArgument, match="is not empty"):
        savepoint.copy(str(precious.parent))
    assert precious.read_text() == "mine"


def test_an_operator_that_was_removed_is_left_out(tmp_path: Path) -> None:
    oracle = Oracle()
    with Cluster(tmp_path, workers=1) as cluster:
        run(cluster, oracle, range(3))
        lock = cluster.coordinator.store_lock
        record = cluster.store.operator("counts")
        old = replace(cluster.store.manifest("counts", 0), operator="old")
        cluster.store.blobs.write(names.operator_path("old"), replace(record, name="old").encode())
        cluster.store.blobs.write(names.manifest_path("old", 0), old.encode())
        assert retired(cluster.store, ["counts"]) == ["old"]
        run(cluster, oracle, range(3, 40))
        with pytest.raises(InvalidArgument, match=r"'old': 0.*--without"):
            create_savepoint(cluster.store, lock, "all")
        made = create_savepoint(cluster.store, lock, "one", without=["old"])
        assert made.epochs == {"counts": 39}


def test_a_worker_dies_before_the_first_batch_is_committed(
    made: tuple[Path, Oracle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint, oracle = copied(made, tmp_path)
    restored(tmp_path / "new", savepoint)
    monkeypatch.setenv("ANABRANCH_CRASH_AT", "w1:applied:1,w2:changelog-written:1")
    with Cluster(tmp_path / "new", workers=2) as cluster:
        run(cluster, oracle, range(3))


def test_refusals_touch_nothing(made: tuple[Path, Oracle], tmp_path: Path) -> None:
    savepoint, _ = copied(made, tmp_path)
    with StateStore(str(tmp_path / "new")).open() as store:
        before = sorted(store.blobs.list())
        with pytest.raises(InvalidArgument, match=r"32 key groups with 4 bins.*key_groups=32"):
            restore_savepoint(store, savepoint, KeySpace(64, 4))
        with pytest.raises(InvalidArgument, match="no savepoint at"):
            restore_savepoint(store, str(tmp_path / "nowhere"), KEYSPACE)
        assert sorted(store.blobs.list()) == before
    with StateStore(str(made[0])).open() as store:
        with pytest.raises(StateMismatch, match="holds state already, of 'counts'"):
            restore_savepoint(store, savepoint, KEYSPACE)
        with pytest.raises(InvalidArgument, match=r"'first' in .* already"):
            create_savepoint(store, threading.Lock(), "first")
    some = next((tmp_path / "taken").rglob("*.changelog"))
    some.write_bytes(some.read_bytes()[:-1])
    with pytest.raises(AnabranchError, match="not copied whole"):
        restored(tmp_path / "new", savepoint)


def test_list_copy_and_delete(
    made: tuple[Path, Oracle], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state"
    shutil.copytree(made[0], folder)
    blobs = BlobStore(str(folder))
    (savepoint,) = list_savepoints(blobs)
    assert savepoint.path == str(folder / "savepoints" / "first")
    assert main(["savepoint", "list", str(folder)]) == 0
    assert "counts as of batch 20, without offsets" in capsys.readouterr().out
    assert main(["savepoint", "create", str(folder), "second"]) == 0
    assert [s.epochs for s in list_savepoints(blobs)] == [{"counts": 20}, {"counts": 59}]
    assert main(["savepoint", "delete", str(folder), "second", "--yes"]) == 0
    copy = savepoint.copy(str(tmp_path / "copy"))
    assert (copy.id, copy.epochs, copy.bytes) == (savepoint.id, savepoint.epochs, savepoint.bytes)
    with pytest.raises(InvalidArgument, match="only: 'first'"):
        delete_savepoint(blobs, "second")
    delete_savepoint(blobs, "first")
    assert list_savepoints(blobs) == []
    assert not (folder / "savepoints" / "first").exists()
    restored(tmp_path / "new", copy.path)
    with StateStore(str(folder)).open() as store:
        store.verify(store.manifest("counts", 59))


KILLED = """
import sys, threading
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.savepoint import create_savepoint
from anabranch.durability.store import StateStore
from anabranch.model.keyspace import KeySpace
from anabranch.processes.crash_points import crash_point
what, location, argument = sys.argv[1:]
step = lambda step: crash_point("driver", step)
with StateStore(location).open() as store:
    if what == "create":
        create_savepoint(store, threading.Lock(), argument, on_step=step)
    else:
        restore_savepoint(store, argument, KeySpace(32, 4), step)
"""


def killed(step: str, *arguments: str) -> None:
    environment = {**os.environ, "ANABRANCH_CRASH_AT": f"driver:{step}:1"}
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=environment, cwd=ROOT)
    assert done.returncode == -9


def test_killed_while_it_is_created(made: tuple[Path, Oracle], tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shutil.copytree(made[0], folder)
    blobs = BlobStore(str(folder))
    for step, is_there in {
        "savepoint-begun": False,
        "savepoint-operator": False,
        "savepoint-before": False,
        "savepoint-after": True,
    }.items():
        killed(step, "create", str(folder), step)
        found = {savepoint.name: savepoint for savepoint in list_savepoints(blobs)}
        assert (step in found) is is_there
        with StateStore(blobs).open() as store:
            if not is_there:
                create_savepoint(store, threading.Lock(), step)
        Savepoint.open(str(folder / "savepoints" / step)).verify()


def test_killed_while_it_is_restored(made: tuple[Path, Oracle], tmp_path: Path) -> None:
    savepoint, oracle = copied(made, tmp_path)
    new = tmp_path / "new"
    killed("restore-begun", "restore", str(new), savepoint)
    with (
        StateStore(str(new)).open() as store,
        pytest.raises(StateMismatch, match="Start it with restore="),
    ):
        restore_savepoint(store, None, KEYSPACE)
    killed("restore-operator", "restore", str(new), savepoint)
    killed("restore-after", "restore", str(new), savepoint)
    restored(new, savepoint)
    with Cluster(new, workers=2) as cluster:
        run(cluster, oracle, range(2))
    assert (new / names.RESTORE_FILE).exists()
