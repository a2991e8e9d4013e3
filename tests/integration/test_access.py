"""Modes of every file and folder that a service makes, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.harness import Cluster

from anabranch.cli.main import main
from anabranch.durability.savepoint import create_savepoint

ROOT = Path(__file__).parents[2]
OTHERS = 0o077


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(*places: Path) -> dict[str, int]:
    """Of the places and of everything below them."""
    found = [path for place in places for path in (place, *place.rglob("*"))]
    assert len(found) > 2 * len(places)
    return {str(path): path.stat().st_mode & 0o777 for path in found}


def open_ones(*places: Path) -> dict[str, str]:
    """Those that somebody else could use, or that the owner could not."""
    return {
        name: oct(mode)
        for name, mode in modes(*places).items()
        if mode != (0o700 if os.path.isdir(name) else 0o600)
    }


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_all_that_a_service_makes_is_private(
    tmp_path: Path, umask: Callable[[int], int], mask: int
) -> None:
    umask(mask)
    state, local = tmp_path / "made" / "state", tmp_path / "made" / "local"
    with Cluster(state, backend="rocksdb", local_dir=str(local)) as cluster:
        for epoch in range(3):
            cluster.run_batch(epoch, range(300))
        create_savepoint(cluster.store, cluster.coordinator.store_lock, "first")
        kinds = {Path(name).suffix for name in modes(state)}
        assert {".json", ".changelog"} <= kinds
        assert list(local.rglob("*.sst")) or list(local.rglob("CURRENT"))
        assert not open_ones(tmp_path / "made")
    saved, copy = state / "savepoints" / "first", tmp_path / "copies" / "copy"
    assert main(["savepoint", "copy", str(saved), str(copy)]) == 0
    assert main(["savepoint", "create", str(state), "second"]) == 0
    exported = tmp_path / "made" / "counts.parquet"
    old = str(ROOT / "tests" / "data" / "location-0.1" / "aligned")
    assert main(["state", old, "--operator", "counts", "--export", str(exported)]) == 0
    assert exported.stat().st_size
    assert not open_ones(tmp_path / "made", tmp_path / "copies")


def test_a_shared_location_is_as_open_as_the_umask(
    tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(0o027)
    with Cluster(tmp_path / "state", shared=True) as cluster:
        cluster.run_batch(0, range(300))
        create_savepoint(cluster.store, cluster.coordinator.store_lock, "first")
    saved = tmp_path / "state" / "savepoints" / "first"
    assert main(["savepoint", "copy", "--shared", str(saved), str(tmp_path / "copy")]) == 0
    found = modes(tmp_path / "state", tmp_path / "copy")
    assert {mode for name, mode in found.items() if os.path.isdir(name)} == {0o750}
    assert {mode for name, mode in found.items() if not os.path.isdir(name)} == {0o640}
    # A link would leave files open that nobody but us should read.
    assert main(["savepoint", "copy", str(saved), str(tmp_path / "mine")]) == 0
    assert not open_ones(tmp_path / "mine")


def test_folders_that_a_user_made_keep_their_modes(
    tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(0o000)
    state = tmp_path / "state"
    state.mkdir(0o755)
    with Cluster(state) as cluster:
        cluster.run_batch(0, range(30))
        # A location of an earlier release: everything is open.
        made = [path for path in state.rglob("*") if path.is_dir()]
        assert made
        assert not [path for path in made if path.stat().st_mode & OTHERS]
        for folder in made:
            folder.chmod(0o755)
        before = modes(state)
    with Cluster(state) as cluster:
        assert cluster.run_batch(1, range(30)) == dict.fromkeys(range(30), 2)
    after = modes(state)
    changed = {name: after[name] for name, mode in before.items() if after.get(name, mode) != mode}
    assert not {name for name in changed if os.path.isdir(name)}
    assert not open_ones(*(path for path in made if path.name == "changelog")).keys() - set(before)
