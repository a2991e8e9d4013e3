"""A location that an earlier release wrote still opens: every entry, and the batches after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.data import operators_0_1 as frozen
from tests.integration import harness
from tests.integration.streaming import MovingCluster
from tests.unit.processor.rows.support import define

from anabranch.durability.group_restore import load_groups
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.state.channel import ChannelledState

DATA = Path(__file__).parents[1] / "data" / "location-0.1"
EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
"""What the earlier release's operators say and hold after each epoch, run one after the other."""

LAST, SAVED = EXPECTED["last"], EXPECTED["saved"]
DEFINITIONS = frozen.definitions(define)
GROUPS = range(frozen.KEYSPACE.groups)

State = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def _keyspace_of_the_location(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "KEYSPACE", frozen.KEYSPACE)


@pytest.fixture
def location(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy, as the present release would find it."""
    return Path(shutil.copytree(DATA / request.param, tmp_path / "state"))


def start(location: Path, workers: int = 2) -> MovingCluster:
    aggregate, clock = DEFINITIONS[frozen.AGGREGATE], frozen.FrozenClock()
    cluster = MovingCluster(location, workers, aggregate, clock=clock, fsync=False)
    cluster.register(DEFINITIONS[frozen.ROWS], frozen.ROWS)
    return cluster


def run(cluster: MovingCluster, name: str, epoch: int) -> list[str]:
    rows = frozen.rows_of(name, epoch)
    query = f"query of {name}"
    return frozen.as_text(cluster.run_lanes(epoch, 2, rows, operator=name, query=query))


def stored(store: StateStore, name: str, epoch: int) -> State:
    """All entries of an operator as of an epoch, by kind of state, from its files."""
    engine = DEFINITIONS[name].open(frozen.KEYSPACE)
    groups = load_groups(
        store.blobs,
        store.manifest(name, epoch),
        GROUPS,
        lambda: ChannelledState(engine.create_group()),
    )
    found: dict[str, list[Any]] = {}
    for group in groups.values():
        assert not group.state.waiting
        for section, entries in group.state.inner.export().items():
            found.setdefault(section, []).extend(entries.to_pylist())
    return alive({section: frozen.as_text(rows) for section, rows in found.items()}, epoch)


def held(expected: dict[str, Any], epoch: int) -> State:
    """What an operator must hold as of an epoch."""
    return alive(expected["states"][str(epoch)], epoch)


def alive(state: State, epoch: int) -> State:
    """Without values that have expired: they go when somebody looks at them."""
    now = frozen.times_of(epoch).processing_time_ms
    expiring = [json.loads(entry) for entry in state.get("recent", [])]
    return {**state, "recent": [entry for entry in expiring if entry["expiry_ms"] > now]}


@pytest.mark.parametrize("location", ["aligned"], indirect=True)
def test_state_is_there_and_goes_on(location: Path) -> None:
    with start(location) as cluster:
        for name, expected in EXPECTED["aligned"].items():
            manifest = cluster.store.manifest(name, LAST)
            assert manifest.snapshots, "both kinds of files are there to read"
            assert manifest.changelogs
            assert stored(cluster.store, name, LAST) == held(expected, LAST)
            assert run(cluster, name, LAST + 1) == expected["outputs"][LAST + 1]
            assert stored(cluster.store, name, LAST + 1) == held(expected, LAST + 1)


@pytest.mark.parametrize("location", ["aligned"], indirect=True)
def test_the_last_batch_may_run_again(location: Path) -> None:
    with start(location, workers=3) as cluster:
        for name, expected in EXPECTED["aligned"].items():
            assert run(cluster, name, LAST) == expected["outputs"][LAST]
            assert stored(cluster.store, name, LAST) == held(expected, LAST)


@pytest.mark.parametrize("location", ["aligned"], indirect=True)
def test_its_savepoint_is_restored(location: Path, tmp_path: Path) -> None:
    with StateStore(tmp_path / "new") as store:
        restore_savepoint(store, str(location / "savepoints" / "saved"), frozen.KEYSPACE)
    with start(tmp_path / "new") as cluster:
        for name, expected in EXPECTED["aligned"].items():
            assert run(cluster, name, SAVED + 1) == expected["outputs"][SAVED + 1]
            assert stored(cluster.store, name, SAVED + 1) == held(expected, SAVED + 1)


@pytest.mark.parametrize("location", ["unaligned"], indirect=True)
def test_rows_that_wait_in_a_checkpoint_are_processed(location: Path) -> None:
    """Once each, and before those of the next batch."""
    with start(location) as cluster:
        for name, expected in EXPECTED["unaligned"].items():
            said, last = expected["said"], len(expected["outputs"]) - 1
            later = [run(cluster, name, epoch) for epoch in range(len(said), last + 1)]
            assert dict(by_key(said + later)) == dict(by_key(expected["outputs"]))
            assert stored(cluster.store, name, last) == alive(expected["state"], last)


def by_key(outputs: list[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """What was said about each key, in whichever batches."""
    said = [row for some in outputs for row in some]
    for key in {json.loads(row)["k"] for row in said}:
        yield key, [row for row in said if json.loads(row)["k"] == key]
