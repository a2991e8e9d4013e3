"""The simulated coordinator process: the real CoordinatorMachine inside a driver that can crash."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anabranch.errors import LocationNotWritable
from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch
from anabranch.model.routing import first_workers, initial_routing
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.simulation.launcher import START_TICKS, DriverLauncher, SimulatedLauncher
from anabranch.simulation.oracle import GROUPS, OPERATOR
from anabranch.simulation.order_handler import Job
from anabranch.simulation.registry import SimulatedRegistry
from anabranch.simulation.store import SimulatedManifest

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster

MANIFEST_TICKS = 5
LATE_SHARE, FIRST_LATE_SHARE, LATE_TICKS = 0.08, 0.4, 60
"""Orders that take long: others overtake them. First grants often do: key groups flip meanwhile."""


class CoordinatorProcess:
    """One life of the driver's coordinator."""

    __slots__ = (
        "cluster",
        "end",
        "generation",
        "has_given_up",
        "host",
        "is_alive",
        "launcher",
        "machine",
        "pending",
        "scheduler",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.is_alive = True
        self.has_given_up = False
        self.end, self.host, self.scheduler = "C", DRIVER, cluster.scheduler
        self.generation = cluster.generation
        self.pending: set[int] = set()
        """Orders that are not answered."""
        self.launcher = self._launcher()
        names = first_workers(cluster.worker_count)
        self.machine, effects = protocol.CoordinatorMachine.create(
            initial_routing(GROUPS, names), self._first_hosts()
        )
        self.register()
        for effect in effects:
            self._perform(effect)

    def _launcher(self) -> SimulatedLauncher:
        hosts = self.cluster.hosts
        return DriverLauncher(self) if hosts is None else SimulatedRegistry(self, hosts)

    @property
    def registry(self) -> SimulatedRegistry:
        """What agents talk to."""
        assert isinstance(self.launcher, SimulatedRegistry)
        return self.launcher

    def _first_hosts(self) -> tuple[protocol.HostJoined, ...]:
        is_alone = self.cluster.hosts is None
        return (protocol.HostJoined(DRIVER, None, {}),) if is_alone else ()

    def register(self) -> None:
        """Make the operator known, with what the store holds."""
        store = self.cluster.store
        committed, before = store.latest()
        event = protocol.OperatorRegistered(
            OPERATOR,
            store.query_id,
            None if committed is None else Epoch(committed),
            None if before is None else Epoch(before),
            store.first,
        )
        self.handle(event)

    def handle(self, event: protocol.Event) -> None:
        """Feed the machine and perform its effects in order."""
        if not self.is_alive:
            return
        checks = self.cluster.checks.hosts
        before = checks.before(self, event) if checks is not None else {}
        effects = self.machine.handle(event)
        if checks is not None:
            checks.coordinator_step(self, event, before, effects)
        if isinstance(event, protocol.WorkerDown):
            self.launcher.down(event)
        elif isinstance(event, protocol.OrderDone | protocol.OrderFailed):
            self.pending.discard(event.order)
        for effect in effects:
            self._perform(effect)
        gate = self.machine.gate
        if gate is not None and isinstance(event, protocol.LaneBegan) and gate.holds(event, GROUPS):
            self.cluster.count("begins_gated")
        if isinstance(event, protocol.WorkerDown | protocol.OrderFailed):
            fleet = self.machine.fleet
            self.has_given_up |= any(fleet.is_given_up(worker) for worker in fleet.workers)
        self.cluster.checks.coordinator_step(self, event)
        if checks is not None:
            checks.after_step(self)

    def _perform(self, effect: protocol.Effect) -> None:
        cluster = self.cluster
        match effect:
            case protocol.GrantLane():
                cluster.checks.granted(self, effect)
                cluster.reply(effect.request, effect, f"grant base {effect.base}")
            case protocol.ConfirmFinish():
                cluster.reply(effect.request, effect, "confirmed")
            case protocol.RefuseRequest():
                self.has_given_up |= "do not reach" in str(effect.error)
                cluster.reply(effect.request, effect, f"refused: {type(effect.error).__name__}")
            case protocol.BindQuery():
                cluster.store.query_id, cluster.store.first = effect.query_id, effect.first
            case protocol.WriteManifest():
                self._write_manifest(effect)
            case protocol.StartWorker():
                self.launcher.start(effect)
            case protocol.StopWorker():
                self.launcher.stop(effect)
            case protocol.SendOrder():
                self._send(effect)
            case protocol.MoveEnded():
                cluster.moves.ended(effect)
            case _:
                unhandled(effect)

    def _write_manifest(self, effect: protocol.WriteManifest) -> None:
        cluster, schedule = self.cluster, self.cluster.scheduler
        cluster.checks.manifest_begun(effect)
        manifest = cluster.store.prepare(effect)
        lands, is_reported = cluster.faults.write_outcome()
        delay = schedule.delay(MANIFEST_TICKS)
        if lands:
            label = f"store gets manifest {effect.epoch}"
            schedule.after(max(1, delay - 1), label, self._land, manifest)
        done: protocol.Event = protocol.ManifestWritten(effect.operator, effect.epoch)
        if not is_reported:
            error = LocationNotWritable("simulated manifest failure")
            done = protocol.ManifestFailed(effect.operator, effect.epoch, error)
        schedule.after(delay, f"manifest {effect.epoch} reported {is_reported}", self.handle, done)

    def _land(self, manifest: SimulatedManifest) -> None:
        if self.is_alive or self.cluster.faults.write_survives_writer():
            self.cluster.store.manifests[manifest.epoch] = manifest
            self.cluster.checks.manifest_landed(manifest)
            self.cluster.moves.committed()

    def _send(self, effect: protocol.SendOrder) -> None:
        cluster, order = self.cluster, effect.order
        if order.is_first_grant:
            cluster.checks.first_grant(self, effect)
        process = cluster.process(effect.worker, effect.incarnation)
        name = f"{effect.worker}.{effect.incarnation} order {effect.number}"
        if process is None:
            failed = protocol.OrderFailed(effect.number, "simulated end of the worker.")
            delay = cluster.scheduler.delay(START_TICKS)
            cluster.scheduler.after(delay, f"{name} reaches nobody", self.handle, failed)
            return
        if cluster.hosts is not None:
            self.pending.add(effect.number)
            cluster.hosts.in_flight.register(
                self, process, partial(self._is_pending, effect), partial(self._lose, effect)
            )
        text = f"{name}: {order.kind.value} {order.groups} {order.peer} v{order.version}"
        job = Job(process, effect)
        if cluster.rng.random() < (FIRST_LATE_SHARE if order.is_first_grant else LATE_SHARE):
            ticks = int(cluster.rng.random() * LATE_TICKS)
            cluster.network.send_late(ticks, self, process, text, job.arrive)
        else:
            cluster.network.send(self, process, None, text, job.arrive)
        again = cluster.faults.order_comes_again()
        if again is not None:
            cluster.count("orders_twice")
            job = Job(process, effect)
            cluster.network.send_late(again, self, process, f"{text} again", job.arrive)

    def _is_pending(self, effect: protocol.SendOrder) -> bool:
        return self.is_alive and effect.number in self.pending

    def _lose(self, effect: protocol.SendOrder, is_cut: bool) -> None:
        self.handle(protocol.OrderFailed(effect.number, "simulated silence."))
