"""Live lookups: the state of single keys as of the last committed epoch, while queries run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.errors import AccessRefused, InvalidArgument, ServiceUnavailable
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processes.worker_pool import WorkerPool
from anabranch.processor.readers import Reader, reader_of
from anabranch.protocol.coordinator import CoordinatorMachine
from anabranch.transport.client import Peer
from anabranch.transport.messages.state import LookUp
from anabranch.transport.packing import pack_keys

LOOKUP_SECONDS_MAX = 60.0
"""For so long a lookup waits, also for workers that are being started."""

ANSWER_SECONDS_MAX = 180.0
"""An answer may have millions of entries, made on a busy machine."""

RETRY_SECONDS = 0.05


class LiveState:
    """The state of an operator, or of one of its state variables, key by key.

    Every answer is the state as of the last epoch that is committed when the question is asked; all
    keys of one question are as of the same epoch.
    """

    def __init__(self, lookups: LookupClient, operator: str, reader: Reader) -> None:
        self._lookups = lookups
        self._operator = operator
        self._reader = reader

    def get(self, key: Any = ()) -> Any:
        """The value of a key; None if it has none.

        A key of one column is given as its value, others as a tuple or a dict in the order or with
        the names of the grouping; a window as (start, end).
        """
        return self.get_many([key])[0]

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """The values of many keys, in their order, as of one epoch."""
        return self.read(keys)[1]

    def read(self, keys: Iterable[Any]) -> tuple[int | None, list[Any]]:
        """The epoch (None: before the first) and the values of keys as of it."""
        if isinstance(keys, (str, bytes, Mapping)):
            raise InvalidArgument(
                f"Several keys are a list of them, got {keys!r}. For one key, say get({keys!r})."
            )
        canonical, table = self._reader.keys.table(list(keys))
        epoch, values = self._lookups.ask(self._operator, self._reader, table)
        return epoch, [values.get(key) for key in canonical]

    def locate(self, key: Any = ()) -> tuple[int, str]:
        """The key group of a key, and the worker that owns it now."""
        _, table = self._reader.keys.table([key])
        return self._lookups.place_of(table)

    def __repr__(self) -> str:
        return f"LiveState({self._operator!r}, by {', '.join(self._reader.keys.columns)})"


class LookupClient:
    """Asks workers for the coordinator."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        lock: threading.RLock,
        pool: WorkerPool,
        operators: Mapping[str, OperatorRecord],
        keyspace: KeySpace,
    ) -> None:
        self._machine = machine
        self._lock = lock
        self._pool = pool
        self._operators = operators
        self._keyspace = keyspace

    def state(self, operator: str, variable: str | None) -> LiveState:
        """Check that there is such state."""
        with self._lock:
            known = self._operators.get(operator)
            names = list(self._operators)
        if known is None:
            raise InvalidArgument(
                f"There is no operator {operator!r} in this service, only: "
                f"{', '.join(map(repr, names)) or 'none'}. Define it first."
            )
        reader = reader_of(operator, known.definition, variable, self._keyspace)
        return LiveState(self, operator, reader)

    def place_of(self, keys: pa.Table) -> tuple[int, str]:
        """Key group and owner of the first of some keys."""
        group = int(self._keyspace.group_of(keys.column(HASH).to_numpy())[0])
        with self._lock:
            return group, self._machine.routing.owners[group]

    def ask(
        self, operator: str, reader: Reader, keys: pa.Table
    ) -> tuple[int | None, Mapping[Any, Any]]:
        """Values of keys as of the last committed epoch, which is said too."""
        deadline = time.monotonic() + LOOKUP_SECONDS_MAX
        while True:
            try:
                return self._ask(operator, reader, keys)
            except AccessRefused:
                raise
            except ServiceUnavailable:  # a worker has gone, or got another definition
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _ask(
        self, operator: str, reader: Reader, keys: pa.Table
    ) -> tuple[int | None, Mapping[Any, Any]]:
        with self._lock:
            view = self._machine.operators[operator]
            as_of, owners = view.committed, self._machine.routing.owners
            definition = self._operators[operator].definition_id
        groups = self._keyspace.group_of(keys.column(HASH).to_numpy())
        asked: dict[str, tuple[Peer, list[int]]] = {}
        for group in np.unique(groups).tolist():
            peer = self._peer(owners[group])
            asked.setdefault(peer.address, (peer, []))[1].append(group)
        requests = []
        for peer, some in asked.values():
            wanted = pack_keys(keys.filter(pa.array(np.isin(groups, some))))
            requests.append((peer, LookUp(operator, definition, reader.section, as_of, wanted)))
        # Large answers come in pieces, which become values one by one.
        return as_of, reader.values(
            parcel.tables
            for peer, request in requests
            for parcel in peer.stream(request, ANSWER_SECONDS_MAX)
        )

    def _peer(self, owner: str) -> Peer:
        """The owner, or whoever is there: all can read the store."""
        peers = self._pool.peers()
        for worker, peer in peers.items():
            if worker == owner:
                return peer
        if not peers:
            raise ServiceUnavailable("All workers are being started. Try again in a moment.")
        return next(iter(peers.values()))
