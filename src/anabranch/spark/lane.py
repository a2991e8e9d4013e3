"""A lane: one Spark task that carries its rows to the workers that own them now.

The lane keeps its rows until it has all outputs, so it can send them again when a worker dies; it
keeps all outputs until it has reported them, so a crash never leaves half of them in the sink.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import methodcaller

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from anabranch.errors import AnabranchError, ServiceUnavailable, displaced
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.model.routing import lane_groups
from anabranch.model.stats import add_stats
from anabranch.transport.client import Exchange, Peer
from anabranch.transport.messages.lanes import (
    Begin,
    Finish,
    LaneGrant,
    LaneOwner,
    TransactionDone,
    TransactionHeader,
    TransactionReports,
)
from anabranch.transport.spool import Spool

ATTEMPTS_MAX = 6
"""Times that rows are sent before the task fails: a worker that dies each time is not bad luck."""

RETRY_SECONDS = 0.2

# Arrow loads what `filter` needs when it is first used: 0.4 s in a busy Python worker. A lane needs
# it when its key groups first have two owners, in the middle of a rescale: so load it now.
pa.record_batch({HASH: [0]}).filter(pa.array([True]))


@dataclass(frozen=True)
class LaneConfig:
    """What a task needs to reach the service; travels inside the task's closure."""

    coordinator: str
    token: str
    operator: str
    definition: int
    keyspace: KeySpace
    lanes: int


LaneFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def lane_function(config: LaneConfig) -> LaneFunction:
    """The function for `mapInArrow`."""

    def run_lane(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_modules()
        return LaneRun(config, LaneTask.current()).run(batches)

    return run_lane


@cache
def _freeze_modules() -> None:
    """Spark's Python workers look for garbage after each task: not in all modules every time."""
    gc.freeze()


@dataclass(frozen=True)
class LaneTask:
    """Which batch and which lane this task is."""

    query_id: str
    epoch: Epoch
    lane: Lane
    attempt: int

    @classmethod
    def current(cls) -> LaneTask:
        """Read from Spark's task context."""
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty("sql.streaming.queryId")
        epoch = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or epoch is None:
            raise AnabranchError(
                "The result of a stateful operator can only be used in a streaming query: "
                "start it with writeStream."
            )
        lane = Lane(context.partitionId())
        return cls(query_id, Epoch(int(epoch)), lane, context.taskAttemptId())


class LaneRun:
    """One run of a lane."""

    def __init__(self, config: LaneConfig, task: LaneTask) -> None:
        self._config = config
        self._task = task
        self._coordinator = Peer(
            config.coordinator,
            config.token,
            "The state service of this query (was it stopped? then make a new one, define the "
            "operator again and start the query)",
        )
        self._rows = Spool()
        self._row_schema = pa.schema([])
        self._outputs = Spool()
        self._transactions: list[TransactionDone] = []
        groups = config.keyspace.groups
        self._missing: set[int] = set(lane_groups(self._task.lane, config.lanes, groups))
        """Key groups whose outputs have not arrived."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in, outputs out."""
        grant = self._begin()
        self._send_and_receive(grant, self._keep(batches))
        for attempt in range(1, ATTEMPTS_MAX):
            if not self._missing:
                break
            # At once the first time: a key group that has just moved is where the routing says.
            time.sleep(RETRY_SECONDS * (attempt - 1))
            self._send_and_receive(self._begin(is_retry=True), self._rows)
        if self._missing:
            raise ServiceUnavailable(
                f"Rows of operator '{self._config.operator}' were sent {ATTEMPTS_MAX} times, and "
                f"each time a worker went away. Last: {self._failure._message} A processor that "
                "exits its process or runs out of memory looks like this: see the exit codes in "
                "the driver's log."
            )
        self._finish()
        for batch in self._outputs:
            yield pa.RecordBatch.from_arrays(batch.columns[1:], names=batch.schema.names[1:])

    def _keep(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._check_lane(batch)
            self._row_schema = batch.schema
            self._rows.append(batch)
            yield batch

    def _check_lane(self, batch: pa.RecordBatch) -> None:
        """A task is a lane only while nothing in its stage merges or renumbers partitions."""
        if batch.num_rows:
            group = batch.column(HASH)[0].as_py() % self._config.keyspace.groups
            if group % self._config.lanes != self._task.lane:
                raise displaced(self._config.operator)

    def _begin(self, is_retry: bool = False) -> LaneGrant:
        task = self._task
        if task.lane >= self._config.lanes:
            raise displaced(self._config.operator)
        begin = Begin(
            self._config.operator,
            self._config.definition,
            task.query_id,
            task.epoch,
            task.lane,
            self._config.lanes,
            task.attempt,
            is_retry,
        )
        return self._coordinator.call(begin)

    def _finish(self) -> None:
        stats: dict[str, int] = {"rows_input": self._rows.num_rows}
        for transaction in self._transactions:
            add_stats(stats, transaction.stats)
        finish = Finish(
            self._config.operator,
            self._task.epoch,
            self._task.lane,
            self._config.lanes,
            tuple(self._transactions),
            stats,
        )
        self._coordinator.call(finish)

    # -- exchanges --

    def _send_and_receive(self, grant: LaneGrant, batches: Iterable[pa.RecordBatch]) -> None:
        """One try with every owner of a missing key group; failed ones stay missing."""
        owners = _Owners(grant.owners, self._missing, self._config.keyspace)
        exchanges: dict[int, Exchange] = {}
        shadows = self._open_shadows(grant)
        try:
            for index, owner in enumerate(owners.members):
                self._guard(exchanges, index, partial(self._open, grant, owner))
            for batch in batches:
                for index, part in owners.divide(batch):
                    if index in exchanges:
                        self._guard(exchanges, index, partial(exchanges[index].write, part))
                if shadows is not None:
                    shadows.write(batch)
            if shadows is not None:
                shadows.end(self._row_schema)
            for index, exchange in list(exchanges.items()):
                end = partial(exchange.done_writing, self._row_schema)
                self._guard(exchanges, index, end)
            for index, exchange in list(exchanges.items()):
                self._guard(exchanges, index, partial(self._receive, exchange))
        finally:
            for exchange in exchanges.values():
                exchange.close()
            if shadows is not None:
                shadows.close()

    def _open_shadows(self, grant: LaneGrant) -> _Shadows | None:
        """Future owners process the rows too; what they answer is dropped."""
        if not grant.shadows:
            return None
        shadows = _Shadows(_Owners(grant.shadows, self._missing, self._config.keyspace))
        for index, member in enumerate(shadows.owners.members):
            with contextlib.suppress(ServiceUnavailable):
                shadows.exchanges[index] = self._open(grant, member, is_shadow=True)
        return shadows

    def _guard(
        self, exchanges: dict[int, Exchange], index: int, step: Callable[[], Exchange | None]
    ) -> None:
        """A worker that cannot be reached costs only its own key groups a retry."""
        try:
            opened = step()
        except ServiceUnavailable as error:
            self._failure: AnabranchError = error
            failed = exchanges.pop(index, None)
            if failed is not None:
                failed.close()
            return
        if opened is not None:
            exchanges[index] = opened

    def _open(self, grant: LaneGrant, owner: LaneOwner, is_shadow: bool = False) -> Exchange:
        if owner.address is None:
            raise ServiceUnavailable(f"Worker {owner.worker} has just gone away.")
        task = self._task
        header = TransactionHeader(
            operator=self._config.operator,
            definition=self._config.definition,
            epoch=task.epoch,
            base=grant.base,
            lane=task.lane,
            lanes=self._config.lanes,
            attempt=task.attempt,
            groups=tuple(KeyGroup(group) for group in owner.groups),
            version=grant.version,
            times=grant.times,
            initial=grant.initial,
            waits=grant.waits,
            is_shadow=is_shadow,
        )
        peer = Peer(owner.address, self._config.token, f"Worker {owner.worker}")
        return peer.exchange(header)

    def _receive(self, exchange: Exchange) -> None:
        """Take all outputs of one worker or none."""
        received = Spool()
        report: TransactionReports | None = None
        while (chunk := exchange.read()) is not None:
            batch, message = chunk
            report = message or report
            if batch is not None and batch.num_rows:
                received.append(batch)
        if report is None:
            raise ServiceUnavailable("A worker ended its answer without a report.")
        for batch in received:
            self._outputs.append(batch)
        for transaction in report.transactions:
            self._transactions.append(transaction)
            self._missing.difference_update(transaction.report.groups)


class _Shadows:
    """Exchanges with future owners; their failures are not the lane's."""

    def __init__(self, owners: _Owners) -> None:
        self.owners = owners
        self.exchanges: dict[int, Exchange] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Send them their rows."""
        for index, part in self.owners.divide(batch):
            self._try(index, methodcaller("write", part))

    def end(self, schema: pa.Schema) -> None:
        """Send the end mark and wait until it has arrived, not until they are done."""
        for index in list(self.exchanges):
            self._try(index, methodcaller("done_writing", schema))
            self._try(index, methodcaller("read"))

    def close(self) -> None:
        """Give up what is left."""
        for exchange in self.exchanges.values():
            exchange.close()

    def _try(self, index: int, step: Callable[[Exchange], object]) -> None:
        exchange = self.exchanges.get(index)
        if exchange is None:
            return
        try:
            step(exchange)
        except AnabranchError:  # it catches up another way
            del self.exchanges[index]
            exchange.close()


class _Owners:
    """The workers that own a lane's missing key groups, and how a batch is divided among them."""

    def __init__(self, owners: Iterable[LaneOwner], missing: set[int], keyspace: KeySpace) -> None:
        self.members: list[LaneOwner] = []
        self._keyspace = keyspace
        self._owner_of = np.full(keyspace.groups, -1, dtype=np.int64)
        covered = 0
        for owner in owners:
            groups = [group for group in owner.groups if group in missing]
            covered += len(owner.groups)
            if groups:
                self._owner_of[groups] = len(self.members)
                self.members.append(replace(owner, groups=tuple(groups)))
        whole = sum(len(member.groups) for member in self.members) == covered == len(missing)
        self._is_single = whole and len(self.members) == 1

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows for each member."""
        if self._is_single:
            yield 0, batch
            return
        hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
        owner_of_row = self._owner_of[self._keyspace.group_of(hashes)]
        for index in range(len(self.members)):
            part = batch.filter(pa.array(owner_of_row == index))
            if part.num_rows:
                yield index, part
