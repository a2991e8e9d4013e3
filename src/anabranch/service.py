"""StateService: what users hold. Binds operators to a location, its workers and Spark queries."""

from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.coordinator.autoscaler import Autoscaler
from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.declared_sites import sites_of
from anabranch.coordinator.location import open_store, restored
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.service_autoscale import (
    ServiceAutoscale,
    autoscale_settings,
    scaler_of,
)
from anabranch.coordinator.service_hosts import (
    HOST_TIMEOUT_SECONDS,
    NO_HOST_TIMEOUT_SECONDS,
    ServiceHosts,
    host_settings,
)
from anabranch.coordinator.service_savepoints import ServiceSavepoints
from anabranch.coordinator.service_sites import ServiceSites
from anabranch.coordinator.service_states import ServiceStates
from anabranch.coordinator.service_workers import Recycler, ServiceWorkers, check_seconds
from anabranch.coordinator.site_keeper import SiteKeeper
from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.errors import InvalidArgument
from anabranch.http.control_plane import (
    ControlPlane,
    ServiceControl,
    check_http,
    end_service,
)
from anabranch.model.keyspace import KeySpace
from anabranch.processes.host_source import HostSource
from anabranch.processes.worker_config import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_SNAPSHOT_SECONDS,
    WorkerConfig,
    check_checkpoint,
    settled_state,
)
from anabranch.processor.contract import OperatorDefinition
from anabranch.spark.arguments import check_arguments
from anabranch.spark.attach import attach
from anabranch.spark.clock import SparkClock
from anabranch.spark.grouping import GroupedStream
from anabranch.spark.hosts import own_address, source_of
from anabranch.spark.local_dir import local_folder
from anabranch.spark.plain_rpc import warn_of_plain_rpc
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.python_check import check_python
from anabranch.spark.service_enable import Enabling, ServiceEnable
from anabranch.spark.service_takeover import ServiceTakeover
from anabranch.spark.state_source import register
from anabranch.state.backend import check_backend
from anabranch.transport.messages.hosts import StateFolder

__all__ = ["StateService"]


class StateService(
    ServiceAutoscale,
    ServiceControl,
    ServiceEnable,
    ServiceSavepoints,
    ServiceSites,
    ServiceStates,
    ServiceTakeover,
    ServiceWorkers,
):
    """Keyed state for streaming queries, in worker processes beside Spark.

    Parameters
    ----------
    spark : SparkSession
        Session of the streaming queries.
    location : str
        Folder or URI that keeps the state (anything `pyarrow.fs` opens). Created if missing.
    workers : int
        Number of worker processes.
    key_groups, bins : int
        How finely keys can move between workers. Fixed once the location holds state.
    lanes : int, optional
        Tasks of the operator's stage. Default: Spark's default parallelism. May change later.
    memory_bytes : int
        Limit for rows and outputs of an operator's batch in each worker. Its lanes share it
        evenly. Beyond the limit, rows and outputs go to disk.
    state : str, optional
        How much of the state is in memory. "hybrid": after a start, batches read the keys they need
        from the location; workers load the rest in the background. "local": workers read a whole
        key group before its first batch. "remote": workers keep nothing between batches. Default:
        "hybrid"; "local" with "rocksdb" or checkpoint="independent", which read whole key groups.
    backend : str
        Where state is while the service runs: "memory", or "rocksdb" for state larger than memory
        (needs the extra `rocksdb`). May change from one start to the next.
    state_memory_bytes : int, optional
        Memory for state in each worker, besides the keys of a batch. Default: no limit; with
        "rocksdb", 1 GiB. With "memory", a limit needs "hybrid": cold state leaves memory, and
        batches read it from the location again.
    local_dir : str, optional
        With "rocksdb", a folder on a local disk of each host. Default: Spark's `spark.local.dir`.
    host : str, optional
        Address to listen on, as executors and hosts reach it. Default: loopback; on a cluster, the
        address of Spark's driver (`spark.driver.host`).
    tls : bool, optional
        Whether calls are encrypted (extra `tls`). Default: if `host` is not loopback.
    fsync : bool
        Whether files reach the disk before a batch commits, not only the operating system.
    shared : bool
        Whether other users of this machine may read what the service makes in local folders, as far
        as the umask lets them. By default nobody else can: folders have mode 700, files 600.
    start_empty : collection of str
        Names of operators that are new in a query that has run before. They start empty. For all
        others, the service refuses a later batch that finds no state: the state was lost, or is
        elsewhere.
    restore : str, optional
        Path of a savepoint to start from, in a new location. You may leave it in the program: the
        service restores the savepoint once.
    checkpoint : str
        What each batch makes durable. "changelog": changes. "full": all state of the key groups
        that changed. "unaligned": changes, and rows whose state is still on its way, so the batch
        does not wait for it. "independent": rows; each worker saves its state by itself, every
        `snapshot_seconds`. May change from one start to the next.
    snapshot_seconds : float, optional
        With "independent", seconds between two saves of a worker, by its own clock. Default: 30.
        The other checkpoints refuse it.
    user_code_timeout_s : float, optional
        Seconds that one call of user code may take (of a row processor: for one key). A longer call
        fails the query with an error that names the key. Default: no limit; the log names calls of
        more than 10 s.
    http : bool or int, optional
        Whether to serve the HTTP API on loopback, for the commands of `anabranch` and for
        Prometheus; a number is the port. Default: yes, if the extra `ui` is installed.
    autoscale : mapping, optional
        Settings of the autoscaler, as `autoscale()` takes them. Default: it is off.
    sites : collection of str
        Values of site columns (`group_by(..., placed_by=...)`) that get key groups of their own, in
        this order. Others share some. More may be added later, before their first row.
    site_groups : int, optional
        Key groups for each site, fixed with `key_groups`. Default: up to 16, such that twice as
        many sites have room.
    hosts : SparkHosts, JoinedHosts or str, optional
        Where workers run: with `SparkHosts()` on the hosts of Spark's executors (the default on a
        cluster), with `JoinedHosts()` on hosts that join, or "driver" (else the default).
    host_timeout : float
        Seconds after which a host that is not heard is lost: others take its workers.
    no_host_timeout : float
        Seconds that a query waits while no host has room for its workers; then it fails with an
        error that names the hosts.

    Examples
    --------
    >>> with StateService(spark, "state/orders", workers=2) as service:      # doctest: +SKIP
    ...     totals = service.group_by(df, "k").aggregate(n=agg.count(), name="totals")
    ...     query = totals.writeStream.format("console").start()
    ...     query.awaitTermination()
    """

    _definitions: dict[str, OperatorDefinition]
    _coordinator: Coordinator

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
        host: str | None = None,
        tls: bool | None = None,
        fsync: bool = True,
        shared: bool = False,
        start_empty: Collection[str] = (),
        restore: str | None = None,
        checkpoint: str = "changelog",
        snapshot_seconds: float | None = None,
        user_code_timeout_s: float | None = None,
        sites: Collection[str] = (),
        site_groups: int | None = None,
        hosts: HostSource | str | None = None,
        host_timeout: float = HOST_TIMEOUT_SECONDS,
        no_host_timeout: float = NO_HOST_TIMEOUT_SECONDS,
        http: bool | int | None = None,
        autoscale: Mapping[str, Any] | None = None,
    ) -> None:
        check_http(http)
        check_arguments(spark, location, workers, key_groups, bins, lanes, memory_bytes)
        wanted = autoscale_settings(autoscale)
        check_backend(backend, state_memory_bytes, local_dir)
        check_checkpoint(checkpoint, snapshot_seconds)
        check_seconds("user_code_timeout_s", user_code_timeout_s)
        snapshot_seconds = snapshot_seconds or DEFAULT_SNAPSHOT_SECONDS
        settings = host_settings(
            source_of(spark, hosts), host_timeout, no_host_timeout, state_memory_bytes,
            StateFolder(backend == "rocksdb", local_dir),
        )  # fmt: skip
        host = host or own_address(spark)
        state = settled_state(state, backend, checkpoint, state_memory_bytes)
        local_dir = local_folder(spark, backend, local_dir, settings.source is None)
        self._spark, self._clock, self._keyspace = spark, SparkClock(), KeySpace(key_groups, bins)
        self._lanes = min(lanes or spark.sparkContext.defaultParallelism, key_groups)
        self._definitions, self._saving = {}, threading.Lock()
        self._python = check_python(spark.sparkContext)
        self._store = open_store(location, fsync, shared)
        self._control = ControlPlane(self._store)
        try:
            restored(self._store, restore, self._keyspace)
            self._sites = sites_of(self._store, self._keyspace, sites, site_groups)
            make_config = functools.partial(
                WorkerConfig, host=host, location=self._store.blobs.address, key_groups=key_groups,
                bins=bins, memory_bytes=memory_bytes, fsync=fsync, shared=shared, state=state,
                backend=backend, state_memory_bytes=state_memory_bytes, local_dir=local_dir,
                checkpoint=checkpoint, snapshot_seconds=snapshot_seconds,
            )  # fmt: skip
            self._coordinator = Coordinator(
                self._store, self._clock, self._keyspace, workers, make_config, host, start_empty,
                checkpoint, user_code_timeout_s, tls, settings, self._control.notes,
            )  # fmt: skip
        except BaseException:
            self._control.stop(is_in_order=False)
            self._store.close()
            raise
        self._look_after(wanted, state_memory_bytes)
        self._control.start(self, http, workers, key_groups, checkpoint)

    def _look_after(self, wanted: AutoscaleSettings, state_memory_bytes: int | None) -> None:
        """From now on: sites, the number of workers, readers of state.

        The end of the program and of the last reference do what `stop` does.
        """
        register(self._spark)
        self._keeper = SiteKeeper(self._coordinator, self._sites, self._store)
        self._scaler = scaler_of(self._coordinator, self._clock, state_memory_bytes, wanted)
        parts = self._scaler, self._keeper, self._coordinator, self._store, self._control
        self._stop_at_exit = weakref.finalize(self, end_service, *parts)
        atexit.register(self._stop_at_exit)

    # -- operators --

    def group_by(
        self,
        df: DataFrame,
        *keys: str | Column,
        window: Any = None,
        placed_by: str | None = None,
    ) -> GroupedStream:
        """Group a streaming DataFrame by key columns and, for aggregates, by a window.

        `placed_by` names a key column with the site of each key. All state of a site is then in
        key groups of the site, which `place` moves as a whole.
        """
        return GroupedStream(self._attach, df, keys, window, self._sites.by(placed_by))

    def _enabling(self) -> Enabling:
        self._check_running()
        return Enabling(self._attach, self._coordinator.bindings.is_free, self._sites)

    def _attach(
        self, plan: OperatorPlan, name: str, own_stage: bool, family: str | None = None
    ) -> DataFrame:
        self._check_running()
        self._python.require()
        if self._coordinator.access.is_exposed:
            warn_of_plain_rpc(self._spark.sparkContext)
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
            family,
        )
        self._definitions[name] = plan.definition
        return result

    # -- operation --

    def status(self) -> dict[str, Any]:
        """Tell workers, key groups, rows and bytes of state, last epochs and batch timings."""
        self._check_running()
        return {**self._coordinator.status(), "sites": self._keeper.describe()}

    @property
    def is_running(self) -> bool:
        """Whether nobody has called `stop`."""
        return self._stop_at_exit.alive

    def stop(self) -> None:
        """End all workers and release the location. Stop the queries first. Safe to call twice."""
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

    def _autoscaler(self) -> Autoscaler:
        self._check_running()
        return self._scaler

    def _recycler(self) -> Recycler:
        self._check_running()
        return self._coordinator.recycler

    def _running_checkpoints(self) -> list[SparkCheckpoint]:
        return list(self._clock.checkpoints(self._coordinator.query_of))

    def _hosts(self) -> ServiceHosts:
        self._check_running()
        return self._coordinator.hosts

    def _running_coordinator(self) -> Coordinator:
        self._check_running()
        return self._coordinator

    def _check_running(self) -> None:
        if not self.is_running:
            raise InvalidArgument("This state service was stopped. Create a new one.")
