"""StateService: what users hold. Binds operators to a location, its workers and Spark queries."""

from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession

from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.lookup_client import LiveState
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.service_moves import ServiceMoves
from anabranch.durability.savepoint import (
    Savepoint,
    create_savepoint,
    list_savepoints,
    retired,
)
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.durability.store import StateStore
from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import KeySpace
from anabranch.processes.crash_points import crash_point
from anabranch.processes.launcher import LocalLauncher
from anabranch.processes.worker_config import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_SNAPSHOT_SECONDS,
    WorkerConfig,
    check_checkpoint,
    settled_state,
)
from anabranch.processor.contract import OperatorDefinition
from anabranch.spark.attach import attach
from anabranch.spark.clock import SparkClock
from anabranch.spark.grouping import GroupedStream
from anabranch.spark.local_dir import local_folder
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.state_source import register
from anabranch.state.backend import check_backend

if TYPE_CHECKING:
    from anabranch.spark.takeover import ImportReport

__all__ = ["StateService"]


class StateService(ServiceMoves):
    """Keyed state for streaming queries, in worker processes beside Spark.

    Parameters
    ----------
    spark : SparkSession
        Session of the streaming queries.
    location : str
        Folder or URI (anything that `pyarrow.fs` opens) that keeps the state; made if missing.
    workers : int
        Number of worker processes.
    key_groups, bins : int
        How finely keys can be moved between workers; fixed once the location holds state.
    lanes : int, optional
        Tasks of the operator's stage; by default Spark's default parallelism. May change later.
    memory_bytes : int
        Limit for rows and outputs of an operator's batch in each worker, shared evenly by its
        lanes; beyond it they go to disk.
    state : str, optional
        How much of the state is in memory. "hybrid": after a start, batches read the keys they need
        from the location, the rest comes in the background. "local": all of a key group is read
        before its first batch. "remote": nothing is kept between batches. By default "hybrid" where
        it is possible: not with "rocksdb" or checkpoint="independent", which read whole key groups.
    backend : str
        Where state is while the service runs: "memory", or "rocksdb" for state larger than that
        (needs the extra `rocksdb`). May change from one start to the next.
    state_memory_bytes : int, optional
        What each worker uses of memory for state, beside that of a batch's keys. By default there
        is no limit, and with "rocksdb" 1 GiB. In memory it needs "hybrid": what is cold leaves
        memory beyond it, the location has it.
    local_dir : str, optional
        With "rocksdb", a folder on a local disk; by default Spark's `spark.local.dir`.
    host : str
        Interface to listen on; loopback unless Spark's executors are on other hosts.
    fsync : bool
        Whether files reach the disk, not only the operating system, before a batch commits.
    start_empty : collection of str
        Names of operators that are new in a query that has run before, and start empty there.
        Without it, a batch after the first one that finds no state is refused: it was lost or is
        elsewhere.
    restore : str, optional
        Path of a savepoint that the state starts from, in a new location. May stay when the program
        starts again: the savepoint is restored once.
    checkpoint : str
        What each batch makes durable: "changelog" (what has changed), "full" (all state of what has
        changed), "unaligned" (changes, and rows whose state is on its way: the batch does not wait
        for it) or "independent" (rows; state when `snapshot_seconds` have passed, each worker for
        itself). May change from one start to the next.
    snapshot_seconds : float, optional
        With "independent", seconds after which a worker saves its state by its own clock; 30 by
        default. Refused with the others.

    Examples
    --------
    >>> with StateService(spark, "state/orders", workers=2) as service:      # doctest: +SKIP
    ...     totals = service.group_by(df, "k").aggregate(n=agg.count(), name="totals")
    ...     query = totals.writeStream.format("console").start()
    ...     query.awaitTermination()
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        *,
        workers: int = 2,
        key_groups: int = 256,
        bins: int = 16,
        lanes: int | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        state: str | None = None,
        backend: str = "memory",
        state_memory_bytes: int | None = None,
        local_dir: str | None = None,
        host: str = "127.0.0.1",
        fsync: bool = True,
        start_empty: Collection[str] = (),
        restore: str | None = None,
        checkpoint: str = "changelog",
        snapshot_seconds: float | None = None,
    ) -> None:
        _check_arguments(spark, location, workers, key_groups, bins, lanes, memory_bytes)
        check_backend(backend, state_memory_bytes, local_dir)
        check_checkpoint(checkpoint, snapshot_seconds)
        state = settled_state(state, backend, checkpoint, state_memory_bytes)
        local_dir = local_folder(spark, backend, local_dir)
        self._spark = spark
        self._keyspace = KeySpace(key_groups, bins)
        self._lanes = min(lanes or spark.sparkContext.defaultParallelism, key_groups)
        self._clock = SparkClock()
        self._enabled: Any = None
        self._definitions: dict[str, OperatorDefinition] = {}
        self._saving = threading.Lock()
        register(spark)
        self._store = StateStore(location, fsync=fsync).open()
        try:
            restore_savepoint(
                self._store, restore, self._keyspace, lambda step: crash_point("driver", step)
            )
            self._coordinator = Coordinator(
                self._store,
                LocalLauncher(),
                self._clock,
                self._keyspace,
                workers,
                functools.partial(
                    WorkerConfig,
                    host=host,
                    location=self._store.blobs.address,
                    key_groups=key_groups,
                    bins=bins,
                    memory_bytes=memory_bytes,
                    fsync=fsync,
                    state=state,
                    backend=backend,
                    state_memory_bytes=state_memory_bytes,
                    local_dir=local_dir,
                    checkpoint=checkpoint,
                    snapshot_seconds=snapshot_seconds or DEFAULT_SNAPSHOT_SECONDS,
                ),
                host,
                start_empty,
                checkpoint,
            )
        except BaseException:
            self._store.close()
            raise
        self._stop_at_exit = weakref.finalize(self, _stop, self._coordinator, self._store)
        atexit.register(self._stop_at_exit)

    # -- operators --

    def group_by(self, df: DataFrame, *keys: str | Column, window: Any = None) -> GroupedStream:
        """Group a streaming DataFrame by key columns (and a window, for aggregates)."""
        return GroupedStream(self._attach, df, keys, window)

    def enable(self) -> None:
        """Run PySpark's own `groupBy(...).transformWithState(...)` on this service from now on."""
        from anabranch.spark.enable import MethodTakeover

        self._check_running()
        if self._enabled is None:
            self._enabled = MethodTakeover(self.group_by, self._is_free)
            self._enabled.start()

    def disable(self) -> None:
        """Undo `enable`."""
        if self._enabled is not None:
            self._enabled.stop()
            self._enabled = None

    def _is_free(self, name: str) -> bool:
        """Whether a name can be used for another definition: never used, or its query has ended."""
        query_id = self._coordinator.query_of(name)
        if name not in self._definitions:
            return True
        if query_id is None or not self._coordinator.has_begun(name):
            return False  # defined for a query that is still to come
        return not self._clock.is_running(name, query_id)

    def _attach(self, plan: OperatorPlan, name: str, own_stage: bool) -> DataFrame:
        self._check_running()
        given: Any = name
        if not isinstance(given, str) or not given:
            raise InvalidArgument(f"An operator's name must be a text, got {given!r}.")
        query_id = self._coordinator.query_of(name)
        if query_id is not None and self._clock.is_running(name, query_id):
            raise InvalidArgument(
                f"Operator '{name}' is used by the running query {query_id}. Stop that query to "
                "define the operator again, or give this one a name of its own: its state is kept "
                "under it."
            )
        result = attach(
            self._coordinator,
            self._store.blobs,
            self._clock,
            plan,
            name,
            self._lanes,
            own_stage,
        )
        self._definitions[name] = plan.definition
        return result

    def import_checkpoint(
        self,
        checkpoint: str,
        *,
        to: str,
        result: DataFrame,
        operators: Mapping[str, int] | None = None,
    ) -> ImportReport:
        """Go on from a query that ran on Spark's own operators: its state, offsets, watermark.

        Define the query on this service, import, then start it with `to` as checkpointLocation.
        The old query must have been stopped; its checkpoint stays as it is.

        Parameters
        ----------
        checkpoint : str
            checkpointLocation of the old query.
        to : str
            New folder for the new query's checkpoint.
        result : DataFrame
            What the new query writes: its sources must be those of the old query.
        operators : mapping of str to int, optional
            For each operator of this service its operatorId in the old query (the source
            "state-metadata" lists them). Not needed if both have one.
        """
        from anabranch.spark.takeover import import_checkpoint

        self._check_running()
        report = import_checkpoint(
            self._spark,
            self._store,
            self._coordinator.store_lock,
            self._definitions,
            checkpoint,
            to,
            result,
            operators,
        )
        for name in report.rows:
            self._coordinator.announce(name)
        return report

    # -- operation --

    def state(self, operator: str, variable: str | None = None) -> LiveState:
        """State to look keys up in, as of the last committed batch, while queries run and move.

        `service.state("totals").get("a")` is a Row; name a `variable` of a StatefulProcessor with
        several ("$timers" are its timers).
        """
        self._check_running()
        return self._coordinator.lookups.state(operator, variable)

    def savepoint(self, name: str, *, checkpoints: Collection[str] = ()) -> Savepoint:
        """Save the state of all operators under a name, while queries run; kept until deleted.

        All operators of a query are saved as of the same batch, the last one that Spark has
        committed, with Spark's offsets if the query runs; of one that does not, give the
        `checkpointLocation`.
        """
        self._check_running()
        given = [SparkCheckpoint(location) for location in checkpoints]
        running = self._clock.checkpoints(self._coordinator.query_of)
        known = {checkpoint.query_id: checkpoint for checkpoint in (*running, *given)}
        with self._saving:
            with self._coordinator.store_lock:
                without = retired(self._store, self._coordinator.operators)
            return create_savepoint(
                self._store,
                self._coordinator.store_lock,
                name,
                list(known.values()),
                lambda step: crash_point("driver", step),
                without,
            )

    def savepoints(self) -> list[Savepoint]:
        """Savepoints in this location, the oldest first."""
        return list_savepoints(self._store.blobs)

    def status(self) -> dict[str, Any]:
        """Workers, key groups, rows and bytes of state, last epochs, batch timings."""
        self._check_running()
        return self._coordinator.status()

    @property
    def is_running(self) -> bool:
        """Whether `stop` has not been called."""
        return self._stop_at_exit.alive

    def stop(self) -> None:
        """End all workers and let go of the location; stop the queries first. Idempotent."""
        self.disable()
        self._stop_at_exit()
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> StateService:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = self._store.blobs.location
        return f"StateService({where!r}, {'running' if self.is_running else 'stopped'})"

    def _reconfigurer(self) -> MoveRunner:
        self._check_running()
        return self._coordinator.moves

    def _check_running(self) -> None:
        if not self.is_running:
            raise InvalidArgument("This state service was stopped. Create a new one.")


def _stop(coordinator: Coordinator, store: StateStore) -> None:
    coordinator.stop()
    store.close()


def _check_arguments(
    spark: Any,
    location: Any,
    workers: Any,
    key_groups: Any,
    bins: Any,
    lanes: Any,
    memory_bytes: Any,
) -> None:
    if not isinstance(location, str) or not location:
        raise InvalidArgument(f"location must be a folder or a URI, got {location!r}.")
    if type(spark).__name__ != "SparkSession":
        raise InvalidArgument(f"The first argument must be a SparkSession, got {spark!r}.")
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidArgument(
            "Spark Connect sessions have no driver in this process, where the state service lives. "
            "Use a classic session: SparkSession.builder.master(...).getOrCreate()."
        )
    numbers = (
        ("workers", workers),
        ("key_groups", key_groups),
        ("bins", bins),
        ("lanes", lanes),
    )
    for name, value in numbers:
        if value is None and name == "lanes":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidArgument(f"{name} must be a whole number of at least 1, got {value!r}.")
    if workers > key_groups:
        raise InvalidArgument(
            f"{workers} workers cannot share {key_groups} key groups. Ask for fewer workers, or "
            "for more key_groups in a new location (their number is fixed once there is state)."
        )
    if not isinstance(memory_bytes, int) or memory_bytes < 16 << 20:
        raise InvalidArgument(f"memory_bytes must be at least 16 MiB, got {memory_bytes}.")
