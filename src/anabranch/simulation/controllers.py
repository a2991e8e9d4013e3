"""Who decides on the workers of a simulated plant: the autoscaler, a threshold rule, nobody."""

from __future__ import annotations

from anabranch.autoscale.decide import decide, gate, performed
from anabranch.autoscale.decision import Action, Decision
from anabranch.autoscale.memory import NOTHING, ScalerMemory
from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.signals import Outlook, Signals
from anabranch.simulation.plant import Wish


class SimulatedAutoscaler:
    """The one that the service has."""

    def __init__(self, settings: AutoscaleSettings) -> None:
        self.settings = settings
        self.memory: ScalerMemory = NOTHING
        self.decisions: list[Decision] = []
        """Those that differ from the one before."""

    def __call__(self, signals: Signals, outlook: Outlook) -> Wish | None:
        """What to do."""
        decision, self.memory = decide(self.settings, signals, self.memory)
        if decision.is_action:
            decision = gate(self.settings, decision, outlook, self.memory)
        if not self.decisions or decision.gist != self.decisions[-1].gist:
            self.decisions.append(decision)
        if not decision.is_action:
            return None
        self.memory = performed(self.settings, decision, signals.now, self.memory)
        is_rebalance = decision.action is Action.REBALANCE
        workers = decision.workers if is_rebalance else decision.to
        return Wish(workers, is_rebalance, f"{decision.rule.value}: {decision.reason}")


class ThresholdRule:
    """What people write by hand: too busy or too idle for a while, one more or one less."""

    def __init__(
        self,
        least: int,
        most: int,
        above: float = 0.8,
        below: float = 0.4,
        up_seconds: float = 30.0,
        down_seconds: float = 300.0,
    ) -> None:
        self._least, self._most = least, most
        self._above, self._below = above, below
        self._up_seconds, self._down_seconds = up_seconds, down_seconds
        self._since_above: float | None = None
        self._since_below: float | None = None

    def __call__(self, signals: Signals, outlook: Outlook) -> Wish | None:
        """What to do."""
        now, workers = signals.now, signals.fleet.workers
        batches = signals.queries[0].batches[-5:]
        if not batches or signals.fleet.is_moving:
            return None
        seconds = sum(max(batch.seconds, signals.queries[0].interval) for batch in batches)
        busy = sum(sum(batch.useful.values()) for batch in batches) / (seconds * workers)
        self._since_above = (self._since_above or now) if busy > self._above else None
        self._since_below = (self._since_below or now) if busy < self._below else None
        if self._since_above is not None and now - self._since_above >= self._up_seconds:
            self._since_above = now
            return self._wish(workers, workers + 1)
        if self._since_below is not None and now - self._since_below >= self._down_seconds:
            self._since_below = now
            return self._wish(workers, workers - 1)
        return None

    def _wish(self, workers: int, to: int) -> Wish | None:
        to = min(max(to, self._least), self._most)
        return None if to == workers else Wish(to, why="threshold")
