"""Random reconfigurations: rescale, move, drain, rebalance, overlap, cancel; and their ends."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from anabranch.migration.assignment import assign
from anabranch.migration.strategies import STANDBY, STRATEGIES
from anabranch.model.ids import HostId, KeyGroup, WorkerId
from anabranch.protocol import coordinator as protocol
from anabranch.simulation.oracle import GROUPS, OPERATOR

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster

WORKERS_MAX = 4
IDLE_TICKS, IDLE_MAX = 30, 100
Owners = tuple[WorkerId, ...]
LATE_SHARE = 0.2
"""Batches that have begun when the coordinator is told that none runs."""
SIZES = (0, 0, 1 << 20, 20 << 20, 40 << 20, 40 << 20)
"""Of idle key groups: some are copied ahead, some fill a round."""
_KINDS = ("rescale", "rescale", "rescale", "some", "drain", "random")
_HOST_KINDS = (*_KINDS, "drain host", "drain host")
_STRATEGIES = (*STRATEGIES, STANDBY, "lazy", "meces", "replicate", "stop-restart")


class Moves:
    """What was asked for in this life of the service."""

    __slots__ = (
        "before",
        "cluster",
        "commits",
        "drained",
        "idle_count",
        "is_reached",
        "number",
        "open",
        "request",
        "strategy",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.number = 0
        self.clear()

    def clear(self) -> None:
        """A new coordinator knows nothing of earlier requests."""
        self.drained: frozenset[HostId] = frozenset()
        self.request: protocol.MoveRequested | None = None
        self.open: dict[int, str] = {}
        self.before: tuple[Owners, tuple[WorkerId, ...]] | None = None
        self.strategy = "none"
        self.commits = 0
        self.idle_count = 0
        self.is_reached = False
        """Whether the newest request ended where it should."""

    def begin(self) -> None:
        """Ask for something, whatever runs."""
        coordinator = self.cluster.coordinator
        if not coordinator.is_alive:
            return
        owners, workers = self._plan()
        rng = self.cluster.rng
        strategy = rng.choice(_STRATEGIES)
        self._ask(owners, workers, strategy, _options(strategy, rng))
        if strategy == STANDBY:  # it goes on until another request comes
            delay = int(rng.random() * 120)
            follow = rng.choice(("rhino", "rhino", "live", "replicate"))
            generation = self.cluster.generation
            args = owners, workers, follow, generation
            self.cluster.scheduler.after(delay, "", self._take_over, *args)

    def _take_over(
        self, owners: Owners, workers: tuple[WorkerId, ...], strategy: str, generation: int
    ) -> None:
        if generation == self.cluster.generation and self.cluster.coordinator.is_alive:
            self._ask(owners, workers, strategy, {})

    def _ask(
        self, owners: Owners, workers: tuple[WorkerId, ...], strategy: str, options: dict[str, Any]
    ) -> None:
        machine = self.cluster.coordinator.machine
        present = self._present()
        self.before = present
        self.number += 1
        self.strategy = strategy
        idle = self._idle() if self.cluster.sleep_rng is not None else None
        wishes = self._wishes(workers)
        event = protocol.MoveRequested(
            self.number, owners, workers, strategy, options, idle, wishes, self.drained
        )
        self.request, self.is_reached, self.idle_count = event, False, 0
        self.open[self.number] = strategy
        change = sum(a != b for a, b in zip(machine.routing.owners, owners, strict=True))
        self.cluster.scheduler.note(f"REQUEST {self.number} {strategy} {options} {owners}")
        self.cluster.count("requests")
        self.cluster.count("moves", change)
        self.cluster.coordinator.handle(event)
        self._watch(self.number, self.cluster.generation)

    def _present(self) -> tuple[Owners, tuple[WorkerId, ...]]:
        machine = self.cluster.coordinator.machine
        if self.request is not None and self.open:
            return self.request.owners, self.request.workers
        return machine.routing.owners, tuple(sorted(machine.workers))

    def _plan(self) -> tuple[Owners, tuple[WorkerId, ...]]:
        rng = self.cluster.rng
        owners, workers = self._present()
        self.drained = frozenset()
        if self.before is not None and rng.random() < 0.35:
            return self.before  # cancel
        has_hosts = self.cluster.hosts is not None
        kind = rng.choice(_HOST_KINDS if has_hosts else _KINDS)
        if kind == "drain host":
            return self._drain_host(owners, workers)
        if kind == "rescale":
            count = 2 + int(rng.random() * (WORKERS_MAX - 1))
            wanted = tuple(WorkerId(f"w{n}") for n in range(1, count + 1))
            return assign(owners, wanted, rng.choice(("minimal", "range"))), wanted
        if kind == "drain" and len(workers) > 1:
            leaving = rng.choice(workers)
            rest = tuple(w for w in workers if w != leaving)
            return assign(owners, rest), rest
        changed = list(owners)
        for _ in range(GROUPS if kind == "random" else 1 + int(rng.random() * 3)):
            changed[int(rng.random() * GROUPS)] = rng.choice(workers)
        return tuple(changed), workers

    # -- hosts --

    def _drain_host(
        self, owners: Owners, workers: tuple[WorkerId, ...]
    ) -> tuple[Owners, tuple[WorkerId, ...]]:
        """New workers elsewhere take the place of those on a host, which takes none any more."""
        fleet = self.cluster.coordinator.machine.fleet
        if not fleet.hosts:
            return owners, workers
        host = self.cluster.rng.choice(list(fleet.hosts))
        self.drained = frozenset({host})
        self.cluster.count("hosts_drained")
        views = fleet.workers
        stays = tuple(w for w in workers if w not in views or views[w].place != host)
        names = (WorkerId(f"w{n}") for n in itertools.count(1))
        unused = (name for name in names if name not in views and name not in workers)
        wanted = (*stays, *itertools.islice(unused, len(workers) - len(stays)))
        return assign(owners, wanted), wanted

    def _wishes(self, workers: tuple[WorkerId, ...]) -> dict[WorkerId, HostId]:
        """Where somebody would like workers to be."""
        hosts, rng = self.cluster.hosts, self.cluster.rng
        if hosts is None or rng.random() < 0.7:
            return {}
        names = [host.name for host in hosts.of_workers]
        return {worker: rng.choice(names) for worker in workers if rng.random() < 0.5}

    # -- end --

    def ended(self, effect: protocol.MoveEnded) -> None:
        """The coordinator says that nothing is left to do."""
        strategy = self.open.pop(effect.number)
        if effect.number == self.number:
            self.is_reached = not effect.reason
        reason = effect.reason or "reached"
        self.cluster.scheduler.note(f"ENDED {effect.number} {strategy}: {reason}")
        counts, did = self.cluster.counts, effect.counters
        counts[f"{strategy} {'ended' if effect.reason else 'reached'}"] += 1
        counts[f"{strategy} idle_rounds"] += did.get("idle_rounds", 0)
        counts[f"{strategy} woken"] += 0 < did.get("idle_groups", 0) < did.get("flips", 0)

    def committed(self) -> None:
        """A manifest has landed."""
        self.commits += 1

    def _watch(self, number: int, generation: int) -> None:
        scheduler = self.cluster.scheduler
        scheduler.after(IDLE_TICKS, "", self._look, number, generation, self.commits)

    def _look(self, number: int, generation: int, commits: int) -> None:
        cluster = self.cluster
        if generation != cluster.generation or number not in self.open:
            return
        if not cluster.coordinator.is_alive or number != self.number:
            return  # the newest request's watch goes on
        idle = self._idle() if commits == self.commits else None
        if idle is not None:
            cluster.coordinator.handle(idle)
            self.idle_count += 1
        if self.idle_count < IDLE_MAX:
            self._watch(number, generation)

    def _idle(self) -> protocol.BatchesIdle | None:
        """What the coordinator is told of batches; None: one runs."""
        rng, is_in_batch = self.cluster.sleep_rng, self._is_in_batch()
        if rng is None:
            return None if is_in_batch else protocol.BatchesIdle(self._ended())
        if is_in_batch and rng.random() >= LATE_SHARE:
            return None
        sizes = {KeyGroup(group): rng.choice(SIZES) for group in range(GROUPS)}
        return protocol.BatchesIdle(() if is_in_batch else self._ended(), sizes)

    def _ended(self) -> tuple[str, ...]:
        return () if self.cluster.driver.is_running else (OPERATOR,)

    def _is_in_batch(self) -> bool:
        """Whether a batch has begun and is not committed, of a query that still runs."""
        operator = self.cluster.coordinator.machine.operators[OPERATOR]
        if operator.writing is not None:
            return True
        return operator.is_in_batch and self.cluster.driver.is_running


def _options(strategy: str, rng: Any) -> dict[str, Any]:
    """Random options of a strategy."""
    if rng.random() < 0.3:
        return {}
    match strategy:
        case "live":
            return {"wave": 1 + int(rng.random() * 3), "delta": rng.choice((1, 2, 50_000))}
        case "megaphone":
            plan = rng.choice(("all-at-once", "fluid", "batched"))
            return {"plan": plan, "batch": 1 + int(rng.random() * 2)}
        case "meces":
            return {"batch": 1 + int(rng.random() * 3)}
        case "drrs":
            return {"concurrency": 1 + int(rng.random() * 2)}
    return {}
