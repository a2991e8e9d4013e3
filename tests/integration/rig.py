"""Real worker processes and a real store, driven by hand: routing, orders and commits are a test's.

Every batch is compared with a sequential run of the same operator.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from anabranch.durability.manifest import FileRef, Manifest, next_manifest
from anabranch.durability.store import StateStore
from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.processor.contract import BatchTimes
from anabranch.runtime.config import WorkerConfig
from anabranch.runtime.launcher import LocalLauncher, LocalWorker
from anabranch.transport.client import Exchange, Peer
from anabranch.transport.wire import encode
from tests.integration.operators import Case
from tests.unit.columnar.support import MemoryTransaction, RowChunk

KEYSPACE = KeySpace(8, 16)
LANES = 2
OPERATOR = "op"


class Rig:
    """Workers w1, w2, ...; all key groups belong to w1 at first."""

    def __init__(self, folder: Path, case: Case, workers: int = 2) -> None:
        self.case = case
        self.store = StateStore(str(folder)).open()
        self.store.open_operator(OPERATOR, case.definition.description, KEYSPACE)
        self.handles: dict[str, LocalWorker] = {}
        self.peers: dict[str, Peer] = {}
        self.routing: dict[int, str] = dict.fromkeys(range(KEYSPACE.groups), "w1")
        self.version = 1
        self.epoch = -1
        self.manifest: Manifest | None = None
        self.reports: list[dict[str, Any]] = []
        self._attempt = 0
        self.oracle = Oracle(case)
        launcher = LocalLauncher()
        names = [f"w{n}" for n in range(1, workers + 1)]
        starts = [threading.Thread(target=self._start, args=(launcher, n, folder)) for n in names]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        assert len(self.peers) == workers
        self.peers["w1"].call("grant", {"groups": list(self.routing), "version": 1})

    def _start(self, launcher: LocalLauncher, name: str, folder: Path) -> None:
        config = WorkerConfig(
            worker=name,
            incarnation="run-0",
            token="secret",
            host="127.0.0.1",
            location=str(folder),
            key_groups=KEYSPACE.groups,
            bins=KEYSPACE.bins,
            fsync=False,
        )
        handle = launcher.start(config, lambda reason: None)
        peer = Peer(handle.address, "secret", f"Worker {name}")
        head = {"operator": OPERATOR, "definition": 1, "python_path": [os.getcwd()]}
        peer.send("install", encode(head) + b"\n" + cloudpickle.dumps(self.case.definition))
        self.handles[name], self.peers[name] = handle, peer

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles.values():
            handle.kill()
        self.store.close()

    # -- orders --

    def order(
        self, worker: str, name: str, groups: Any = (), peer: str | None = None, **more: Any
    ) -> dict[str, int]:
        """One order; its counters."""
        body = {
            "groups": list(groups),
            "peer": peer,
            "address": None if peer is None else self.handles[peer].address,
            "version": self.version,
            "arrival": "group",
            "ready_first": False,
            "order": "index",
            "by_bin": False,
            "rate": None,
            **more,
        }
        counters: dict[str, int] = self.peers[worker].call(name, body, 60)["counters"]
        return counters

    def flip(
        self, groups: Any, target: str, arrival: str = "group", release: bool = True, **more: Any
    ) -> None:
        """Key groups that belong to one worker go to another."""
        (source,) = {self.routing[group] for group in groups}
        self.version += 1
        self.order(target, "grant", groups, source, arrival=arrival, **more)
        self.routing.update(dict.fromkeys(groups, target))
        if release:
            self.order(source, "release", groups, target)

    def kill(self, worker: str) -> None:
        self.handles[worker].kill()

    def moves(self, worker: str) -> dict[str, int]:
        """Counters since the start."""
        counters: dict[str, int] = self.peers[worker].call("status", {})["moves"]
        return counters

    # -- batches --

    def batch(
        self, routing: Mapping[int, str] | None = None, shadow: Mapping[int, str] | None = None
    ) -> None:
        """Run the next epoch and compare its outputs with the oracle's."""
        outputs = self.run(self.epoch + 1, routing, shadow)
        assert outputs == self.oracle.run(self.epoch + 1)
        self.commit()

    def run(
        self,
        epoch: int,
        routing: Mapping[int, str] | None = None,
        shadow: Mapping[int, str] | None = None,
        before_end: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Send the rows of an epoch; `before_end` runs when all rows but no end mark are sent."""
        self.reports, self._attempt = [], self._attempt + 1
        rows = self.case.rows(epoch)
        exchanges: list[Exchange] = []
        for lane in range(LANES):
            exchanges += self._send(epoch, lane, routing or self.routing, rows, {})
            if shadow:
                more = {"is_shadow": True}
                exchanges += self._send(epoch, lane, shadow, rows, more)
        before_end()
        for exchange in exchanges:
            exchange.done_writing(rows.schema)
        outputs: list[str] = []
        for exchange in exchanges:
            while (chunk := exchange.read()) is not None:
                batch, report = chunk
                if report is not None:
                    self.reports += report["transactions"]
                if batch is not None:
                    outputs += [repr(row) for row in batch.drop_columns([GROUP]).to_pylist()]
            exchange.close()
        answered = [group for report in self.reports for group in report["groups"]]
        assert sorted(answered) == list(range(KEYSPACE.groups))
        return sorted(outputs)

    def _send(
        self,
        epoch: int,
        lane: int,
        routing: Mapping[int, str],
        rows: Any,
        more: dict[str, Any],
    ) -> list[Exchange]:
        exchanges = []
        for worker in sorted(set(routing.values())):
            groups = [g for g, w in routing.items() if w == worker and g % LANES == lane]
            if not groups:
                continue
            header = {
                "operator": OPERATOR,
                "definition": 1,
                "epoch": epoch,
                "base": None if epoch == 0 else epoch - 1,
                "lane": lane,
                "lanes": LANES,
                "attempt": self._attempt,
                "groups": groups,
                "version": self.version,
                "times": asdict(self.case.times(epoch)),
                "initial": [],
                **more,
            }
            exchange = self.peers[worker].exchange(header)
            of_row = KEYSPACE.group_of(rows.column(HASH).to_numpy())
            mine = rows.filter(pa.array(np.isin(of_row, groups)))
            for batch in mine.to_batches():
                exchange.write(batch)
            exchanges.append(exchange)
        return exchanges

    def commit(self) -> None:
        """The epoch that ran last exists now."""
        self.epoch += 1
        refs = [
            FileRef.from_json(json.loads(report["changelog"])).only(report["groups"])
            for report in self.reports
            if report["changelog"] is not None
        ]
        self.manifest = next_manifest(
            self.manifest,
            self.epoch,
            refs,
            operator=OPERATOR,
            query_id=None,
            keyspace=KEYSPACE,
            description=self.case.definition.description,
            committed_at=int(time.time() * 1000),
        )
        self.store.commit(self.manifest)

    def check_state(self) -> None:
        """What the owners hold is what the oracle holds."""
        found = []
        for worker in set(self.routing.values()):
            groups = [g for g, w in self.routing.items() if w == worker]
            body = {"operator": OPERATOR, "definition": 1, "groups": groups}
            done = set()
            for head, tables in self.peers[worker].stream("copy", body):
                found += [repr(row) for t in tables.values() for row in t.to_pylist()]
                if head["kind"] == "done":
                    done.add(head["group"])
            assert done == set(groups)
        assert sorted(found) == self.oracle.state()


class Oracle:
    """The same operator in memory, one batch after the other."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._engine = case.definition.open(KEYSPACE)
        self._groups = tuple(range(KEYSPACE.groups))
        self._states = {group: self._engine.create_group() for group in self._groups}

    def run(self, epoch: int) -> list[str]:
        rows = self._case.rows(epoch)
        times: BatchTimes = self._case.times(epoch)
        tx = MemoryTransaction(epoch, self._groups, times, [RowChunk(self._groups, rows)])
        for state in self._states.values():
            state.begin()
        self._engine.apply(tx, self._states)
        return sorted(
            repr(row) for table in tx.outputs for row in table.drop_columns([GROUP]).to_pylist()
        )

    def state(self) -> list[str]:
        return sorted(
            repr(row)
            for state in self._states.values()
            for table in state.export().values()
            for row in table.to_pylist()
        )
