"""Real worker processes and a real store, driven by hand: routing, orders and commits are a test's.

All operators run in every batch; outputs are compared with a sequential run of each.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.integration.operators import CASES, Case, make_case
from tests.unit.processor.columnar.support import MemoryTransaction

from anabranch.coordinator.order_message import order_message
from anabranch.durability.manifest import FileRef, Manifest, next_manifest
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.migration.steps import Arrival, ImportPriority
from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.processes.launcher import LocalLauncher, LocalWorker
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import BatchTimes, RowChunk
from anabranch.processor.user_code import packed
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.state.backend import Backend
from anabranch.state.contract import Sections
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Exchange, Peer
from anabranch.transport.messages.control import Committed, Install, Status
from anabranch.transport.messages.kinds import Call
from anabranch.transport.messages.lanes import TransactionDone, TransactionHeader
from anabranch.transport.messages.orders import GrantOrder, OrderReply, SaveOrder, SaveReply
from anabranch.transport.messages.state import CopyGroups, DoneHead

KEYSPACE = KeySpace(8, 16)
LANES = 2


class Rig:
    """Workers w1, w2, ...; all key groups belong to w1 at first."""

    backend = "memory"

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        cases: Sequence[str] = CASES,
        restored: tuple[str, Rig] | None = None,
        credentials: Credentials | None = None,
        **settings: Any,
    ) -> None:
        """`restored`: a savepoint of the last epoch of another one, to go on with."""
        self._folder = folder
        self._credentials = credentials or Credentials("secret")
        self._processes = 0
        self.store = StateStore(str(folder)).open()
        self._local = Path(f"{folder}-local")
        # To look into what workers send; little memory, so that state is not kept there for long.
        self._settings = {
            "backend": self.backend,
            "state_memory_bytes": 16 << 10 if self.backend == "rocksdb" else None,
            "local_dir": str(self._local),
            **settings,
        }
        nobody = "", "", Credentials(""), "", ""
        self._reader = WorkerConfig(*nobody, 1, 1, **self._settings).open_backend()
        self.operators = [Operator(make_case(name), self._reader) for name in cases]
        self.epoch = -1
        self.is_restored = restored is not None
        if restored is not None:
            self._go_on(*restored)
        self.first = self.epoch + 1
        for operator in self.operators:
            description = operator.case.definition.description
            self.store.open_operator(operator.name, description, KEYSPACE)
        self.handles: dict[str, LocalWorker] = {}
        self.peers: dict[str, Peer] = {}
        self.routing: dict[int, str] = dict.fromkeys(range(KEYSPACE.groups), "w1")
        self.version = 1
        self._attempt = 0
        self._launcher = launcher = LocalLauncher()
        names = [f"w{n}" for n in range(1, workers + 1)]
        starts = [threading.Thread(target=self._start, args=(launcher, n, folder)) for n in names]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        assert len(self.peers) == workers
        self.peers["w1"].call_patiently(GrantOrder(tuple(map(KeyGroup, self.routing)), None, 1))

    def _go_on(self, savepoint: str, before: Rig) -> None:
        restore_savepoint(self.store, savepoint, KEYSPACE)
        self.epoch = before.epoch
        for operator, old in zip(self.operators, before.operators, strict=True):
            operator.oracle = old.oracle
            operator.manifest = self.store.before(operator.name, None)

    def _start(
        self, launcher: LocalLauncher, name: str, folder: Path, incarnation: str = "run-0"
    ) -> None:
        config = WorkerConfig(
            worker=name,
            incarnation=incarnation,
            credentials=self._credentials,
            host="127.0.0.1",
            location=str(folder),
            key_groups=KEYSPACE.groups,
            bins=KEYSPACE.bins,
            fsync=False,
            **self._settings,
        )
        handle = launcher.start(config, DRIVER, lambda reason: None)
        peer = Peer(handle.address, config.credentials, f"Worker {name}")
        for operator in self.operators:
            pickled = packed(operator.case.definition)
            path = (os.getcwd(),)
            peer.call_patiently(Install(operator.name, 1, path, self.is_restored, False, pickled))
        self.handles[name], self.peers[name] = handle, peer

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles.values():
            handle.kill()
        self._launcher.close()
        self.store.close()
        self._reader.close()
        deadline = time.monotonic() + 10
        while list(self._local.glob("anabranch-*")):
            assert time.monotonic() < deadline, "killed workers left their files behind"
            time.sleep(0.01)

    # -- orders --

    def order(
        self, worker: str, name: str, groups: Any = (), peer: str | None = None, **more: Any
    ) -> dict[str, int]:
        """One order; its counters."""
        address, rate = None if peer is None else self.handles[peer].address, more.pop("rate", None)
        order = make_order(name, groups, peer, **{"version": self.version, **more})
        message: Call[OrderReply | SaveReply] = order_message(order, address, rate, {})
        return self.peers[worker].call(message, 60).counters

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

    def restart(self, *workers: str) -> None:
        """All that they had in memory is gone."""
        for worker in workers:
            self.handles[worker].kill()
            self._processes += 1
            self._start(self._launcher, worker, self._folder, f"run-{self._processes}")
        self.version += 1
        for worker in workers:
            groups = [group for group, owner in self.routing.items() if owner == worker]
            self.order(worker, "grant", groups)

    def kill(self, worker: str) -> None:
        self.handles[worker].kill()

    def moves(self, worker: str) -> dict[str, int]:
        """Counters since the start."""
        return self.peers[worker].call_patiently(Status()).moves

    # -- batches --

    @property
    def reports(self) -> list[TransactionDone]:
        """Of the last run, over all operators."""
        return [report for operator in self.operators for report in operator.reports]

    def batch(
        self, routing: Mapping[int, str] | None = None, shadow: Mapping[int, str] | None = None
    ) -> None:
        """Run the next epoch and compare its outputs with the oracles'."""
        outputs = self.run(self.epoch + 1, routing, shadow)
        assert outputs == self.expected(self.epoch + 1)
        self.commit()

    def expected(self, epoch: int) -> dict[str, list[str]]:
        """Outputs of the sequential runs; call it once for each epoch."""
        return {operator.name: operator.oracle.run(epoch) for operator in self.operators}

    def run(
        self,
        epoch: int,
        routing: Mapping[int, str] | None = None,
        shadow: Mapping[int, str] | None = None,
        before_end: Callable[[], None] = lambda: None,
    ) -> dict[str, list[str]]:
        """Send the rows of an epoch; `before_end` runs when all rows but no end mark are sent."""
        self._attempt += 1
        opened: dict[str, list[Exchange]] = {}
        for operator in self.operators:
            exchanges = opened[operator.name] = []
            for lane in range(LANES):
                exchanges += self._send(operator, epoch, lane, routing or self.routing)
                if shadow:
                    exchanges += self._send(operator, epoch, lane, shadow, is_shadow=True)
        before_end()
        for operator in self.operators:
            for exchange in opened[operator.name]:
                exchange.done_writing(operator.case.rows(epoch).schema)
        return {o.name: o.receive(opened[o.name]) for o in self.operators}

    def _send(
        self,
        operator: Operator,
        epoch: int,
        lane: int,
        routing: Mapping[int, str],
        is_shadow: bool = False,
    ) -> list[Exchange]:
        exchanges = []
        rows = operator.case.rows(epoch)
        for worker in sorted(set(routing.values())):
            groups = [KeyGroup(g) for g, w in routing.items() if w == worker and g % LANES == lane]
            if not groups:
                continue
            header = TransactionHeader(
                operator=operator.name,
                definition=1,
                epoch=Epoch(epoch),
                base=None if epoch == self.first else Epoch(epoch - 1),
                lane=Lane(lane),
                lanes=LANES,
                attempt=self._attempt,
                groups=tuple(groups),
                version=self.version,
                times=operator.case.times(epoch),
                is_shadow=is_shadow,
            )
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
        for operator in self.operators:
            self.store.commit(operator.next_manifest(self.epoch))

    def tell_commit(self, saves: bool = False) -> None:
        """As the coordinator does after a commit; snapshots go into the next manifest."""
        for peer in self.peers.values():
            for operator in self.operators:
                operator.take(
                    peer.call_patiently(Committed(operator.name, Epoch(self.epoch))).snapshots
                )
            if saves:  # one call for all operators: it saves whatever has changed
                saved = peer.call_patiently(self.save_order()).snapshots
                for operator in self.operators:
                    operator.take(saved.get(operator.name, ()))

    def save_order(self) -> SaveOrder:
        """Of all operators, as of the last epoch."""
        return SaveOrder({operator.name: Epoch(self.epoch) for operator in self.operators})

    def check_state(self) -> None:
        """What the owners hold is what the oracles hold."""
        for operator in self.operators:
            found: list[str] = []
            for worker in set(self.routing.values()):
                groups = [g for g, w in self.routing.items() if w == worker]
                found += _state_of(self.peers[worker], operator, groups)
            assert sorted(found) == operator.oracle.state()


def make_order(
    name: str,
    groups: Any,
    peer: str | None,
    version: int,
    arrival: str = "group",
    ready_first: bool = False,
    order: str = "index",
    by_bin: bool = False,
) -> WorkerOrder:
    """An order by its name."""
    return WorkerOrder(
        OrderKind(name),
        tuple(map(KeyGroup, groups)),
        None if peer is None else WorkerId(peer),
        version,
        Arrival(arrival),
        ready_first,
        ImportPriority(order),
        by_bin,
    )


def _state_of(peer: Peer, operator: Operator, groups: list[int]) -> list[str]:
    """Entries of key groups, as another worker would get them."""
    found: list[str] = []
    done = set()
    for parcel in peer.stream(CopyGroups(operator.name, 1, tuple(groups), False)):
        found += operator.oracle.entries(parcel.tables)
        if isinstance(parcel.head, DoneHead):
            done.add(parcel.head.group)
    assert done == set(groups)
    return found


class Operator:
    """One operator: what its last run reported, and its oracle."""

    def __init__(self, case: Case, reader: Backend) -> None:
        self.name = case.name
        self.case = case
        self.oracle = Oracle(case, reader)
        self.reports: list[TransactionDone] = []
        self.taken: list[FileRef] = []
        self.manifest: Manifest | None = None

    def take(self, snapshots: Iterable[str]) -> None:
        """For the next manifest."""
        self.taken += [FileRef.from_json(json.loads(text)) for text in snapshots]

    def receive(self, exchanges: list[Exchange]) -> list[str]:
        """Outputs of all lanes, comparable."""
        self.reports = []
        outputs: list[str] = []
        for exchange in exchanges:
            while (chunk := exchange.read()) is not None:
                batch, report = chunk
                if report is not None:
                    self.reports += report.transactions
                if batch is not None:
                    outputs += [repr(row) for row in batch.drop_columns([GROUP]).to_pylist()]
            exchange.close()
        answered = [group for done in self.reports for group in done.report.groups]
        assert sorted(answered) == list(range(KEYSPACE.groups))
        return sorted(outputs)

    def next_manifest(self, epoch: int) -> Manifest:
        """With the changelogs of the last run."""
        refs = [
            FileRef.from_json(json.loads(done.report.changelog)).only(done.report.groups)
            for done in self.reports
            if done.report.changelog is not None
        ]
        self.manifest = next_manifest(
            self.manifest,
            epoch,
            refs,
            self.taken,
            operator=self.name,
            query_id="query-1",
            keyspace=KEYSPACE,
            description=self.case.definition.description,
            committed_at=int(time.time() * 1000),
            extra={"times": asdict(self.case.times(epoch))},
        )
        self.taken = []
        return self.manifest


class Oracle:
    """The same operator in memory, one batch after the other."""

    def __init__(self, case: Case, reader: Backend, keyspace: KeySpace = KEYSPACE) -> None:
        self._case = case
        self._engine = case.definition.open(keyspace)
        self._reader = case.definition.open(keyspace, reader)
        self._groups = tuple(range(keyspace.groups))
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

    def entries(self, exported: Sections) -> list[str]:
        """What was exported in whatever form, comparable."""
        state = self._reader.create_group()
        state.install(exported)
        return [repr(row) for table in state.export().values() for row in table.to_pylist()]

    def state(self) -> list[str]:
        return sorted(
            repr(row)
            for state in self._states.values()
            for table in state.export().values()
            for row in table.to_pylist()
        )
