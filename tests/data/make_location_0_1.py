"""Wrote `location-0.1`, with the code and the test helpers of release 0.1; see README.md."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import operators_0_1 as frozen
from tests.integration import harness
from tests.integration.streaming import MovingCluster
from tests.unit.columnar.support import MemoryTransaction
from tests.unit.rows.support import define

from anabranch.durability.savepoint import create_savepoint
from anabranch.model.keyspace import GROUP
from anabranch.processor.contract import RowChunk

LAST = 3
SAVED = 1
"""The epoch that a savepoint has."""

harness.KEYSPACE = frozen.KEYSPACE
GROUPS = tuple(range(frozen.KEYSPACE.groups))
DEFINITIONS = frozen.definitions(define)


class Sequential:
    """An operator in memory, one batch after the other: what the location must lead to."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._engine = DEFINITIONS[name].open(frozen.KEYSPACE)
        self._states = {group: self._engine.create_group() for group in GROUPS}

    def run(self, epoch: int) -> list[str]:
        rows = [RowChunk(GROUPS, frozen.pa.Table.from_batches([frozen.rows_of(self._name, epoch)]))]
        tx = MemoryTransaction(epoch, GROUPS, frozen.times_of(epoch), rows)
        for state in self._states.values():
            state.begin()
        self._engine.apply(tx, self._states)
        tables = [table.drop_columns([GROUP]) for table in tx.outputs]
        return frozen.as_text(row for table in tables for row in table.to_pylist())

    def state(self) -> dict[str, list[str]]:
        found: dict[str, list[Any]] = {}
        for state in self._states.values():
            for section, table in state.export().items():
                found.setdefault(section, []).extend(table.to_pylist())
        return {section: frozen.as_text(rows) for section, rows in found.items()}


def start(folder: Path, workers: int, **settings: Any) -> MovingCluster:
    aggregate, clock = DEFINITIONS[frozen.AGGREGATE], frozen.FrozenClock()
    cluster = MovingCluster(folder, workers, aggregate, clock=clock, fsync=False, **settings)
    cluster.register(DEFINITIONS[frozen.ROWS], frozen.ROWS)
    return cluster


def run(cluster: MovingCluster, name: str, epoch: int) -> list[str]:
    rows = frozen.rows_of(name, epoch)
    query = f"query of {name}"
    return frozen.as_text(cluster.run_lanes(epoch, 1, rows, operator=name, query=query))


def aligned(folder: Path) -> dict[str, Any]:
    """Changelogs, snapshots (of a restart in the middle) and a savepoint."""
    runs = {name: Sequential(name) for name in DEFINITIONS}
    outputs: dict[str, list[list[str]]] = {name: [] for name in DEFINITIONS}
    states: dict[str, dict[int, Any]] = {name: {} for name in DEFINITIONS}
    with start(folder, 1) as cluster:
        for epoch in range(LAST + 2):
            for name, sequential in runs.items():
                outputs[name].append(sequential.run(epoch))
                states[name][epoch] = sequential.state()
                if epoch <= LAST:
                    assert run(cluster, name, epoch) == outputs[name][epoch], (name, epoch)
            if epoch == SAVED:
                create_savepoint(cluster.store, cluster.coordinator.store_lock, "saved")
                assert cluster.rescale(2, strategy="stop-restart").wait(60)
    kept = (SAVED + 1, LAST, LAST + 1)
    return {
        name: {"outputs": outputs[name], "states": {epoch: states[name][epoch] for epoch in kept}}
        for name in DEFINITIONS
    }


def unaligned(folder: Path) -> dict[str, Any]:
    """The last checkpoint has rows that were not applied yet, as state was still in the store."""
    said: dict[str, list[list[str]]] = {name: [] for name in DEFINITIONS}
    for epochs in ([0], [1]):
        with start(folder, 1, checkpoint="unaligned") as cluster:
            for epoch in epochs:
                for name in DEFINITIONS:
                    said[name].append(run(cluster, name, epoch))
            operators = cluster.coordinator.status()["operators"]
    found = {}
    for name in DEFINITIONS:
        sequential = Sequential(name)
        outputs = [sequential.run(epoch) for epoch in range(4)]
        assert operators[name]["batches"][-1]["stats"]["rows_deferred"] > 0
        found[name] = {"said": said[name], "outputs": outputs, "state": sequential.state()}
    return found


def main() -> None:
    target = Path(__file__).parent / "location-0.1"
    shutil.rmtree(target, ignore_errors=True)
    expected = {
        "last": LAST,
        "saved": SAVED,
        "aligned": aligned(target / "aligned"),
        "unaligned": unaligned(target / "unaligned"),
    }
    (target / "expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main()
