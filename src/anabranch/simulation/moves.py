"""Random reconfigurations: rescale, move, drain, rebalance, overlap, cancel; and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.migration.assignment import assign
from anabranch.migration.strategies import STANDBY, STRATEGIES
from anabranch.model.ids import WorkerId
from anabranch.protocol import coordinator as protocol
from anabranch.simulation.oracle import GROUPS, OPERATOR

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster

WORKERS_MAX = 4
IDLE_TICKS, IDLE_MAX = 30, 100
Owners = tuple[WorkerId, ...]
_STRATEGIES = (*STRATEGIES, STANDBY, "lazy", "meces", "replicate", "stop-restart")


class Moves:
    """What was asked for in this life of the service."""

    __slots__ = (
        "before",
        "cluster",
        "commits",
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
        event = protocol.MoveRequested(self.number, owners, workers, strategy, options)
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
        if self.before is not None and rng.random() < 0.35:
            return self.before  # cancel
        kind = rng.choice(("rescale", "rescale", "rescale", "some", "drain", "random"))
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

    # -- end --

    def ended(self, effect: protocol.MoveEnded) -> None:
        """The coordinator says that nothing is left to do."""
        strategy = self.open.pop(effect.number)
        if effect.number == self.number:
            self.is_reached = not effect.reason
        reason = effect.reason or "reached"
        self.cluster.scheduler.note(f"ENDED {effect.number} {strategy}: {reason}")
        self.cluster.counts[f"{strategy} {'ended' if effect.reason else 'reached'}"] += 1

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
        if commits == self.commits and not self._is_in_batch():
            ended = () if cluster.driver.is_running else (OPERATOR,)
            cluster.coordinator.handle(protocol.BatchesIdle(ended))
            self.idle_count += 1
        if self.idle_count < IDLE_MAX:
            self._watch(number, generation)

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
