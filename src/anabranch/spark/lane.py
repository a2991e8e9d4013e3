"""A lane: one Spark task that carries its rows to the workers that own them now.

The lane keeps its rows until it has all outputs, so it can send them again when a worker dies; it
keeps all outputs until it has reported them, so a crash never leaves half of them in the sink.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext

from anabranch.errors import (
    AccessRefused,
    AnabranchError,
    CallTimedOut,
    NotReachable,
    ServiceUnavailable,
    displaced,
)
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.model.routing import lane_groups
from anabranch.model.spark_task import NO_TASK, SparkTask
from anabranch.model.stats import add_stats
from anabranch.processor.tally import add_to_accumulators
from anabranch.processor.task_context import task_of
from anabranch.protocol.coordinator_messages import Unreached
from anabranch.spark.lane_host import host_names
from anabranch.spark.lane_owners import LaneOwners, Shadows
from anabranch.spark.plain_errors import plain_errors
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Exchange, Peer
from anabranch.transport.messages.kinds import Call
from anabranch.transport.messages.lanes import (
    Begin,
    Finish,
    LaneFailed,
    LaneGrant,
    LaneOwner,
    LanePeer,
    TransactionDone,
    TransactionHeader,
    TransactionReports,
)
from anabranch.transport.spool import Spool
from anabranch.transport.watch import watch_for_now

ATTEMPTS_MAX = 6
"""Times that rows are sent before the task fails: a worker that dies each time is not bad luck."""

RETRY_SECONDS = 0.2

BRIEF_SECONDS_MAX = 3.0
"""For an answer of the coordinator that needs nobody else."""

CUTS_MAX = 3
"""Times that a call to the coordinator is made anew because its connection was cut."""

R = TypeVar("R")

TELL_SECONDS_MAX = 5.0
"""Nobody waits longer for a line in a log."""

# Arrow loads what `filter` needs when it is first used: 0.4 s in a busy Python worker. A lane needs
# it when its key groups first have two owners, in the middle of a rescale: so load it now.
pa.record_batch({HASH: [0]}).filter(pa.array([True]))


@dataclass(frozen=True)
class LaneConfig:
    """What a task needs to reach the service; travels inside the task's closure.

    The operator has the name that it was defined with; the coordinator says which one has the state
    of the task's query.
    """

    coordinator: str
    credentials: Credentials
    operator: str
    definition: int
    keyspace: KeySpace
    lanes: int


LaneFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def lane_function(config: LaneConfig) -> LaneFunction:
    """The function for `mapInArrow`."""

    def run_lane(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_modules()
        with plain_errors():
            lane = LaneRun(config, LaneTask.current())
            with plain_errors(lane.tell):
                yield from lane.run(batches)

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
    spark: SparkTask = NO_TASK
    """For user code."""
    run_id: str = ""
    """Of the query, anew for each start."""

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
        attempt, task = context.taskAttemptId(), task_of(context)
        run_id = context.getLocalProperty("spark.jobGroup.id") or query_id
        return cls(query_id, Epoch(int(epoch)), lane, attempt, task, run_id)


class LaneRun:
    """One run of a lane."""

    def __init__(self, config: LaneConfig, task: LaneTask) -> None:
        self._config = config
        self._task = task
        self._coordinator = Peer(
            config.coordinator,
            config.credentials,
            "The state service of this query (was it stopped? then make a new one, define the "
            "operator again and start the query)",
        )
        self._rows = Spool()
        self._row_schema = pa.schema([])
        self._outputs = Spool()
        self._transactions: list[TransactionDone] = []
        self._tallies = b""
        self._refusals: set[str] = set()
        self._asked: list[LaneOwner] = []
        self._failures: Counter[tuple[WorkerId, int]] = Counter()
        """How often each process could not be reached."""
        self._unreached: list[Unreached] = []
        """What the coordinator is to hear of when the lane begins again."""
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
            grant = self._begin(is_retry=True)
            self._send_and_receive(grant, self._rows)
        if self._missing:
            raise ServiceUnavailable(
                f"Rows of operator '{self._config.operator}' were sent {ATTEMPTS_MAX} times, and "
                f"each time a worker went away. Last: {self._failure._message} A processor that "
                "exits its process or runs out of memory looks like this: see the exit codes in "
                "the driver's log."
            )
        self._finish(grant)
        add_to_accumulators(self._tallies)
        for batch in self._outputs:
            yield pa.RecordBatch.from_arrays(batch.columns[1:], names=batch.schema.names[1:])

    def tell(self, error: AnabranchError) -> None:
        """The driver's log says why a batch failed, if the driver can be reached."""
        task = self._task
        failed = LaneFailed(self._config.operator, task.run_id, task.epoch, error._message)
        with contextlib.suppress(AnabranchError):
            self._coordinator.call(failed, TELL_SECONDS_MAX)

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
        watch_for_now(self._config.coordinator, self._config.credentials)
        unreached, self._unreached = tuple(self._unreached), []
        begin = Begin(
            self._config.operator,
            self._config.definition,
            task.query_id,
            task.epoch,
            task.lane,
            self._config.lanes,
            task.attempt,
            is_retry,
            host_names(self._config.coordinator),
            unreached,
        )
        try:
            return self._ask(begin, replace(begin, is_retry=True), not unreached)
        except NotReachable:
            self._unreached += unreached
            raise

    def _finish(self, grant: LaneGrant) -> None:
        stats: dict[str, int] = {"rows_input": self._rows.num_rows}
        for transaction in self._transactions:
            add_stats(stats, transaction.stats)
        finish = Finish(
            grant.operator,
            grant.definition,
            self._task.epoch,
            self._task.lane,
            self._config.lanes,
            tuple(self._transactions),
            stats,
            host_names(self._config.coordinator),
        )
        self._ask(finish, finish)

    def _ask(self, request: Call[R], again: Call[R], is_brief: bool = True) -> R:
        """A plain call first, which costs half. Whatever it came to, the coordinator may be asked
        again: patiently, and anew if the connection was cut.
        """
        if is_brief:
            with contextlib.suppress(CallTimedOut):
                return self._coordinator.call(request, BRIEF_SECONDS_MAX)
        for _ in range(CUTS_MAX):
            try:
                return self._coordinator.call_patiently(again)
            except NotReachable as error:
                if not error.is_cut:
                    raise
        return self._coordinator.call_patiently(again)

    # -- exchanges --

    def _send_and_receive(self, grant: LaneGrant, batches: Iterable[pa.RecordBatch]) -> None:
        """One try with every owner of a missing key group; failed ones stay missing."""
        owners = LaneOwners(grant.owners, self._missing, self._config.keyspace)
        self._asked = owners.members
        exchanges: dict[int, Exchange] = {}
        shadows = self._open_shadows(grant)
        try:
            for index, owner in enumerate(owners.members):
                self._guard(exchanges, index, partial(self._open, grant, owner))
            for batch in batches:
                for index, part in owners.divide(batch):
                    if index in exchanges:
                        write = partial(exchanges[index].write, part)
                        self._guard(exchanges, index, write)
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

    def _open_shadows(self, grant: LaneGrant) -> Shadows | None:
        """Future owners process the rows too; what they answer is dropped."""
        if not grant.shadows:
            return None
        shadows = Shadows(LaneOwners(grant.shadows, self._missing, self._config.keyspace))
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
            self._check_refusal(error)
            if isinstance(error, NotReachable):
                self._note_unreached(self._asked[index], error)
            failed = exchanges.pop(index, None)
            if failed is not None:
                failed.close()
            return
        if opened is not None:
            exchanges[index] = opened

    def _check_refusal(self, error: ServiceUnavailable) -> None:
        """Asking again helps only if the worker is elsewhere by now, and another process there."""
        if isinstance(error, AccessRefused):
            if str(error) in self._refusals:
                raise error
            self._refusals.add(str(error))

    def _note_unreached(self, owner: LaneOwner, error: NotReachable) -> None:
        """What the coordinator is to hear of; a connection that was reset may be had again."""
        relay = owner.relay
        process = owner.worker, owner.incarnation
        self._failures[process] += 1
        if not error.is_cut and self._failures[process] < 2:
            return
        if relay is not None and error.address == relay.address:
            self._unreached.append(Unreached(relay.worker, relay.incarnation))
        elif relay is not None:
            self._unreached.append(Unreached(*process, relay.worker))
        elif error.address == owner.address:
            self._unreached.append(Unreached(*process))

    def _open(self, grant: LaneGrant, owner: LaneOwner, is_shadow: bool = False) -> Exchange:
        if owner.address is None:
            raise ServiceUnavailable(f"Worker {owner.worker} has just gone away.")
        target = LanePeer(owner.worker, owner.incarnation, owner.address)
        first = owner.relay or target
        task = self._task
        header = TransactionHeader(
            operator=grant.operator,
            definition=grant.definition,
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
            task=task.spark,
            relay_to=None if owner.relay is None else target,
        )
        peer = Peer(first.address, self._config.credentials, f"Worker {first.worker}")
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
        self._tallies += report.tallies
        for transaction in report.transactions:
            self._transactions.append(transaction)
            self._missing.difference_update(transaction.report.groups)
