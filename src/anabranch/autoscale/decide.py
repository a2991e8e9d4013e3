"""The decision: settings, signals and memory in; what to do, why, and what to remember out.

The rules are asked in the order of `_RULES`; the first that has something to say decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anabranch.autoscale import words
from anabranch.autoscale.balance import SKEW, balance_of
from anabranch.autoscale.decision import Action, Decision, Rule
from anabranch.autoscale.measure import BATCHES_MIN, QueryModel, has_enough, model_of
from anabranch.autoscale.memory import DAY_SECONDS, ScalerMemory, ScalerStep
from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.signals import Outlook, QueryLoad, Signals
from anabranch.autoscale.sizing import IN_USE, ROUNDING, WorkersNeeded, need_of, trusted_least
from anabranch.autoscale.spread import HostPlan, spread

BROUGHT_MIN = 0.1
"""A step that brings less of what it promised is taken back."""
MEMORY_SHARE = 0.8
"""Of what workers may have in memory: fewer workers must not need more."""
REBALANCE_SECONDS = 300.0
"""After sharing out brought little, it is not tried again for so long."""
UP_COST_MAX = 10.0
"""A step up whose move takes so many times `catch_up_duration` is not worth it."""
DOWN_COST_MAX = 0.5
"""The same for a step down, and `scale_down_interval`; `catch_up_duration` is never too long."""
CLIMBING, CLIMB = 1.1, 1.5
"""If so many times the rows come as at the last step up, the next one adds at least so many times
the workers: one long climb is not to take ten steps."""
STABILIZING_MAX = 6.0
"""Times `stabilization_interval`: for so long it waits for batches that show what a step brings."""
WORTH, WORTH_LESS, WORTH_MIN = 0.9, 0.05, 0.5
"""A step down to more than this share of the workers is not worth a move: less for each of the day.

So a day has few of them, whatever the load does.
"""
CLEAR, CLEAR_BATCHES = 0.5, 8
"""A step that brought this share of what it promised was good; else so many batches must say so."""
MERGED = 0.5
"""A step down waits if within this share of the interval a larger one becomes possible."""
OVERDUE, OVERDUE_SECONDS = 3.0, 2.0
"""A batch that runs so many times as long as usual, and so long more, hides a backlog."""


@dataclass(slots=True)
class _Situation:
    """What the rules look at, and what they remember."""

    settings: AutoscaleSettings
    signals: Signals
    memory: ScalerMemory
    needs: tuple[WorkersNeeded, ...]

    @property
    def now(self) -> float:
        """The time."""
        return self.signals.now

    @property
    def workers(self) -> int:
        """That there are."""
        return self.signals.fleet.workers

    @property
    def late(self) -> WorkersNeeded:
        """Of the query that needs most."""
        return max(self.needs, key=lambda need: (need.least, need.good))

    @property
    def interval(self) -> float:
        """For how long less must have been enough."""
        return self.settings.scale_down_interval * self.memory.patience

    def note(self, **fields: Any) -> None:
        """Remember."""
        self.memory = replace(self.memory, **fields)

    def agrees(self, rule: Rule) -> bool:
        """Whether an earlier decision wanted the same, with an older batch; else the next may."""
        newest, wish = self.late.model.newest, self.memory.wish
        if wish is not None and wish[0] == rule.value:
            return newest > wish[1]
        self.note(wish=(rule.value, newest))
        return False

    def hold(self, rule: Rule, reason: str, wanted: int | None = None) -> Decision:
        """Do nothing."""
        wanted = self.workers if wanted is None else wanted
        return self._decision(Action.HOLD, rule, reason, wanted)

    def rescale(self, rule: Rule, reason: str, to: int, plan: HostPlan) -> Decision:
        """So many workers."""
        found = self._decision(Action.RESCALE, rule, reason, to)
        return replace(found, to=to, hosts=plan.names)

    def rebalance(self, reason: str) -> Decision:
        """Key groups are shared out."""
        return self._decision(Action.REBALANCE, Rule.SKEW, reason, self.workers)

    def _decision(self, action: Action, rule: Rule, reason: str, wanted: int) -> Decision:
        found = Decision(action, rule, self.workers, wanted, reason)
        if not self.needs:
            return found
        model = self.late.model
        about = words.inputs(self.late, self.settings)
        row_seconds = 1 / (model.rate * self.workers)
        return replace(found, query=model.name, inputs=about, row_seconds=row_seconds)


def decide(
    settings: AutoscaleSettings, signals: Signals, memory: ScalerMemory
) -> tuple[Decision, ScalerMemory]:
    """What to do now, and what to remember."""
    models = _models(settings, signals, memory)
    needs = tuple(need_of(model, signals.fleet.workers, settings) for model in models)
    state = _Situation(settings, signals, memory, needs)
    found = next(filter(None, (rule(state) for rule in _RULES)))
    return found, state.memory


def is_skewed(settings: AutoscaleSettings, signals: Signals, memory: ScalerMemory) -> bool:
    """Whether rows of key groups are needed to decide."""
    return any(model.skew > SKEW for model in _models(settings, signals, memory))


def gate(
    settings: AutoscaleSettings, decision: Decision, outlook: Outlook, memory: ScalerMemory
) -> Decision:
    """The decision, or why its move is not worth it or not possible."""
    if outlook.lack:
        return _held(decision, Rule.NO_ROOM, f"But {outlook.lack}")
    seconds = outlook.seconds * memory.correction
    is_down = decision.action is Action.RESCALE and decision.to < decision.workers
    limit = (
        max(DOWN_COST_MAX * settings.scale_down_interval, settings.catch_up_duration)
        if is_down
        else UP_COST_MAX * settings.catch_up_duration
    )
    if seconds > limit:
        return _held(decision, Rule.COST, words.costs(outlook.bytes, seconds, limit))
    inputs = {**decision.inputs, "move_bytes": outlook.bytes, "move_seconds": round(seconds, 2)}
    return replace(decision, inputs=inputs)


def performed(
    settings: AutoscaleSettings, decision: Decision, now: float, memory: ScalerMemory
) -> ScalerMemory:
    """The decision's move has begun."""
    if decision.action is Action.REBALANCE:
        return memory.rebalancing(now, decision.inputs["skew"])
    before, after = decision.workers, decision.to
    interval = settings.scale_down_interval * memory.patience
    if decision.rule is Rule.TAKEN_BACK:
        return memory.took_back(ScalerStep(now, after, before), now)
    if after < before:
        return memory.stepped_down(ScalerStep(now, before, after), interval)
    promised = decision.row_seconds * (1 - before / after)
    arrival = decision.inputs.get("arrival_rows_per_second", 0.0)
    step = ScalerStep(now, before, after, decision.row_seconds, promised, decision.query, arrival)
    return memory.stepped_up(step, interval)


def _models(
    settings: AutoscaleSettings, signals: Signals, memory: ScalerMemory
) -> list[QueryModel]:
    acted = -math.inf if memory.acted is None else memory.acted
    known: list[QueryLoad] = [query for query in signals.queries if has_enough(query)]
    workers = signals.fleet.workers
    return [model_of(query, signals.now, workers, settings, acted) for query in known]


def _held(decision: Decision, rule: Rule, reason: str) -> Decision:
    text = f"{decision.reason} {reason}"
    return replace(decision, action=Action.HOLD, rule=rule, reason=text, to=0, hosts=None)


# -- the rules, in their order --


def _unsettled(state: _Situation) -> Decision | None:
    """Nothing to go by, or the picture is about to change by itself."""
    fleet, memory = state.signals.fleet, state.memory
    if fleet.is_moving:
        return state.hold(Rule.MOVING, "Key groups move: looked at again afterwards.")
    if fleet.recovering:
        state.note(wish=None)
        return state.hold(Rule.RECOVERING, f"Not all workers are up: {fleet.recovering}")
    if not state.needs:
        return state.hold(Rule.NO_DATA, f"No query has had {BATCHES_MIN} batches with rows yet.")
    if state.now < memory.retry_at:
        text = words.backing_off(memory.failures, memory.retry_at - state.now)
        return state.hold(Rule.BACKING_OFF, text)
    return None


def _remembering(state: _Situation) -> Decision | None:
    """No rule: what is wanted now counts later, also while nothing can be done."""
    memory = state.memory
    shown = {
        n.model.name: max(memory.shown.get(n.model.name, 0.0), n.model.shown) for n in state.needs
    }
    good = max(need.good for need in state.needs)
    state.memory = replace(memory.saw(state.now, good, state.interval), shown=shown)
    return None


def _stabilizing(state: _Situation) -> Decision | None:
    """The last step is too young to be judged, or too few batches have run since."""
    acted, interval = state.memory.acted, state.settings.stabilization_interval
    if acted is None or state.now - acted >= STABILIZING_MAX * interval:
        return None
    age = state.now - acted
    if age >= interval and state.late.model.is_fitted:
        return None
    text = f"The last step is {age:.0f} s old: looked at what it brings first."
    return state.hold(Rule.STABILIZING, text)


def _brought_nothing(state: _Situation) -> Decision | None:
    """A step up that brought less than a tenth of its promise goes back."""
    memory, step = state.memory, state.memory.step
    if memory.judged or step is None or state.workers != step.after:
        return None
    need = next((each for each in state.needs if each.model.name == step.query), None)
    if need is None or not need.model.is_fitted:
        return None
    row_seconds = 1 / (need.model.rate * state.workers)
    brought = (step.row_seconds_before - row_seconds) / step.promised
    if brought < CLEAR and need.model.fitted < CLEAR_BATCHES:
        text = f"The last step has brought {max(0.0, brought):.0%} of its promise so far."
        return state.hold(Rule.STABILIZING, f"{text} More batches will tell.")
    if brought >= BROUGHT_MIN:
        state.note(judged=True, failed=None)
        return None
    to = max(step.before, state.settings.min)
    plan = spread(to, state.signals.fleet)
    text = words.taken_back(step, brought, row_seconds)
    return state.rescale(Rule.TAKEN_BACK, text, to, plan) if to < state.workers else None


def _out_of_limits(state: _Situation) -> Decision | None:
    """The user wants another number anyway."""
    least, most = state.settings.min, state.settings.max
    to = min(max(state.workers, least), most)
    if to == state.workers:
        return None
    plan = spread(to, state.signals.fleet)
    if plan.missing and to > state.workers:
        return None
    rule = Rule.UP if to > state.workers else Rule.DOWN
    text = f"There are to be {least} to {most} workers, and there are {state.workers}."
    return state.rescale(rule, text, to, plan)


def _skewed(state: _Situation) -> Decision | None:
    """The busiest worker is relieved before others come."""
    need = max(state.needs, key=lambda each: each.model.skew)
    skew, memory = need.model.skew, state.memory
    if memory.rebalanced is not None and need.model.is_fitted:
        before = memory.rebalanced[1]
        brought = (before - skew) / (before - 1)
        until = state.now + REBALANCE_SECONDS if brought < BROUGHT_MIN else 0.0
        state.note(rebalanced=None, no_rebalance_until=until)
    in_use = need.least >= IN_USE * state.workers
    balance = balance_of(state.signals.fleet.groups, state.workers)
    if skew <= SKEW or not in_use or balance is None:
        return None
    if balance.is_worth(skew) and state.now >= state.memory.no_rebalance_until:
        text = words.skewed(need.model.busiest, skew, balance)
        if state.agrees(Rule.SKEW):
            return state.rebalance(text)
        return state.hold(Rule.CONFIRMING, f"{text} Done when the next batch agrees.")
    most = balance.workers_max
    if need.least > state.workers >= most and balance.share * state.workers > SKEW:
        return state.hold(Rule.HOT_GROUP, words.hot_group(balance, most))
    return None


def _up(state: _Situation) -> Decision | None:
    """More are needed."""
    need, memory, workers = state.late, state.memory, state.workers
    if need.least <= workers + ROUNDING:
        return None
    came_down = memory.came_down(state.now, state.interval)
    high = memory.high if came_down else 0
    good = max(need.good, workers + 1, high, _climb(state))
    text = words.up(need, state.settings, good, high)
    if memory.failed is not None and state.now < memory.failed.until:
        most = max(workers, memory.failed.least)
        if most == workers:
            tried = words.remembered(memory.failed, memory.failed.until - state.now)
            return state.hold(Rule.REMEMBERED, f"{text} {tried}", good)
        good = min(good, most)
    to = min(good, state.settings.max)
    if to <= workers:
        return state.hold(Rule.AT_LIMIT, f"{text} max is {state.settings.max}.", good)
    plan = spread(to, state.signals.fleet)
    if to - plan.missing <= workers:
        lack = f"No host has room for {plan.missing} more."
        found = state.hold(Rule.NO_ROOM, f"{text} {lack}", good)
        return replace(found, missing=plan.missing)
    if not state.agrees(Rule.UP):
        return state.hold(Rule.CONFIRMING, f"{text} Done when the next batch agrees.", to)
    found = state.rescale(Rule.UP, text, to - plan.missing, plan)
    return replace(found, wanted=to, missing=plan.missing)


def _climb(state: _Situation) -> int:
    """The least number for a load that has gone on rising since the last step up."""
    step, model = state.memory.step, state.late.model
    if step is None or step.after <= step.before or state.now - step.at > state.interval:
        return 0
    climbs = step.query == model.name and model.arrival > CLIMBING * step.arrival
    return math.ceil(CLIMB * state.workers) if climbs else 0


def _cannot_help(state: _Situation) -> Decision | None:
    """The overhead of a query is above the target, and no other query needs more."""
    state.note(wish=None)
    late = next((need for need in state.needs if need.cannot_help), None)
    if late is None:
        return None
    return state.hold(Rule.CANNOT_HELP, words.cannot_help(late, state.settings))


def _down(state: _Situation) -> Decision | None:
    """Less has been enough for long."""
    memory, workers, interval = state.memory, state.workers, state.interval
    least = state.settings.min
    to = max(memory.highest(state.now - interval), least)
    if to > workers * max(WORTH_MIN, WORTH - WORTH_LESS * _downs_today(state)):
        return None
    if max(memory.highest(state.now - (1 - MERGED) * interval), least) < to:
        text = f"{to} workers have been enough for {interval:.0f} s, and soon fewer will have been."
        return state.hold(Rule.WAITING_DOWN, text, to)
    text = words.down(state.late, state.settings, to, interval)
    if (why := _not_now(state)) is not None:
        return state.hold(Rule.WAITING_DOWN, f"{why} {text}", to)
    limit = state.signals.fleet.worker_state_bytes_max
    size = state.signals.fleet.state_bytes
    in_memory = 1 if limit is None else math.ceil(size / (MEMORY_SHARE * limit))
    trusted = max(trusted_least(n.model.arrival, memory.shown[n.model.name]) for n in state.needs)
    if max(trusted, in_memory) > to:
        to = max(trusted, in_memory)
        which = "have memory for the state" if in_memory >= trusted else "have shown they can"
        text = f"{text} No fewer than {to} {which}."
    if to >= workers:
        return state.hold(Rule.WAITING_DOWN, text, workers)
    return state.rescale(Rule.DOWN, text, to, spread(to, state.signals.fleet))


def _downs_today(state: _Situation) -> int:
    return sum(at > state.now - DAY_SECONDS for at in state.memory.downs)


def _not_now(state: _Situation) -> str | None:
    """Why nobody leaves now; None: they may."""
    memory, interval = state.memory, state.interval
    since = state.now if memory.since is None else memory.since
    if state.now - since < interval:
        return f"Looked at for {state.now - since:.0f} s of {interval:.0f} s:"
    if memory.is_rising():
        return "The load is rising, nobody leaves:"
    running = {query.name for query in state.signals.queries if query.is_in_batch}
    for need in state.needs:
        model = need.model
        if model.backlog > model.batch_rows:
            return f"{model.backlog:,.0f} rows of {model.name} wait, nobody leaves:"
        overdue = OVERDUE * model.batch_seconds + OVERDUE_SECONDS + model.interval
        if model.name in running and state.now - model.newest > overdue:
            return f"A batch of {model.name} takes long, nobody leaves:"
    return None


def _enough(state: _Situation) -> Decision | None:
    """Nothing is to be done."""
    late = state.late
    rule = Rule.SOURCE_SLOW if late.is_source_slow else Rule.ENOUGH
    return state.hold(rule, words.enough(late, state.settings, state.workers))


_RULES: tuple[Callable[[_Situation], Decision | None], ...] = (
    _unsettled,
    _remembering,
    _stabilizing,
    _brought_nothing,
    _out_of_limits,
    _skewed,
    _up,
    _cannot_help,
    _down,
    _enough,
)
