"""The autoscaler on a simulated plant: load curves from seeds, and complaints about others.

A failure prints its seed. `test_thousands` runs many more; only `make soak` does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from anabranch.autoscale.decision import Rule
from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.simulation import autoscale_trials as trials
from anabranch.simulation import load_curves
from anabranch.simulation.autoscale_trials import Trial, best_static
from anabranch.simulation.controllers import SimulatedAutoscaler, ThresholdRule
from anabranch.simulation.load_curves import curve
from anabranch.simulation.plant import Course, Plant, PlantSettings

SEEDS = {"step up": 6, "step down": 6, "deaths": 2, "crowd": 3, "ramp": 2}
"""Of each kind, in usual runs; one of the others, which last for simulated hours."""
MANY = range(1000, 1000 + int(os.environ.get("ANABRANCH_AUTOSCALE_SEEDS", "400")))
DAY = 86_400


def check_step(trial: Trial) -> None:
    """At most 3 actions, to within 1 of the best static number."""
    course, _ = trial.run()
    rates = trial.load.rates[-200:]
    best = best_static(trial, sum(rates) / len(rates))
    assert len(course.changes) <= 3, course.changes
    assert abs(course.workers_at(math.inf, trial.start) - best) <= 1, (best, course.changes)


def check_noise(trial: Trial) -> None:
    """None within an hour."""
    course, _ = trial.run()
    assert not [c for c in course.changes if c.at > trials.NOISE_SETTLED_SECONDS]
    assert len(course.changes) <= 1


def check_sine(trial: Trial, period: float) -> None:
    """At most 2 actions a period, once it has seen one."""
    course, _ = trial.run()
    periods = math.floor(trial.load.seconds / period)
    for number in range(1, periods):
        within = [c for c in course.changes if number * period <= c.at < (number + 1) * period]
        assert len(within) <= 2, (period, number, within)
    assert len(course.changes) <= 2 * periods, (period, course.changes)


def check_drift(trial: Trial) -> None:
    """Rebalanced, not scaled."""
    course, _ = trial.run()
    assert course.changes
    assert all(c.before == c.after and c.what.startswith("skew") for c in course.changes)


def check_deaths(trial: Trial) -> None:
    """A worker that dies is replaced by others; it is no reason to scale."""
    course, autoscaler = trial.run()
    assert not course.changes
    assert any(d.rule is Rule.RECOVERING for d in autoscaler.decisions)


def check_crowd(trial: Trial) -> None:
    """Up in three steps at most, and back."""
    course, _ = trial.run()
    ups = [c for c in course.changes if c.after > c.before]
    assert 1 <= len(ups) <= 3, course.changes
    assert course.workers_at(math.inf, 0) <= max(2, max(c.after for c in ups) - 1)


def check_ramp(trial: Trial) -> None:
    """It follows in a few steps up; with fewer late rows than where it began, and than a rule."""
    course, _ = trial.run()
    ups = [change for change in course.changes if change.after > change.before]
    assert len(ups) <= 5, course.changes
    assert course.late_share < trial.static(trial.start).late_share
    assert course.late_share <= trial.run(ThresholdRule(1, 24))[0].late_share


CHECKS: dict[str, Callable[[int], None]] = {
    "step up": lambda seed: check_step(trials.step_trial(seed, 3.0)),
    "step down": lambda seed: check_step(trials.step_trial(seed, 1 / 3)),
    "noise": lambda seed: check_noise(trials.noise_trial(seed)),
    "sine": lambda seed: check_sine(*trials.sine_trial(seed)),
    "drift": lambda seed: check_drift(trials.drift_trial(seed)),
    "deaths": lambda seed: check_deaths(trials.death_trial(seed)),
    "crowd": lambda seed: check_crowd(trials.crowd_trial(seed)),
    "ramp": lambda seed: check_ramp(trials.ramp_trial(seed)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_load_curves(name: str) -> None:
    for seed in range(SEEDS.get(name, 1)):
        failing(name, seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", CHECKS)
def test_thousands(name: str) -> None:
    """Thousands of curves in all; it counts what fails, and says the seeds."""
    wrong = []
    for seed in MANY:
        try:
            CHECKS[name](seed)
        except AssertionError as error:
            wrong.append((seed, str(error).partition("\n")[0]))
    assert len(wrong) <= len(MANY) * TOLERATED, wrong


TOLERATED = 0.02
"""Of drawn plants, so many have a reason that the drawing did not foresee."""


def failing(name: str, seed: int) -> None:
    try:
        CHECKS[name](seed)
    except AssertionError as error:
        pytest.fail(f"{name}, seed {seed}: {error}")


# -- what users of Flink's autoscaler complain of --


def steady(
    workers: int, seconds: int, rate: float, least: int = 1, **plant: float
) -> tuple[Course, SimulatedAutoscaler]:
    """Some plant under a steady load, for the autoscaler in action."""
    chance = Random(1)
    load = curve("steady", seconds, lambda _: rate, chance, 0.05)
    settings = AutoscaleSettings("act", least, 12, latency_target=1.0)
    autoscaler = SimulatedAutoscaler(settings)
    settled = PlantSettings(**plant)  # type: ignore[arg-type]
    return Plant(settled, load, workers, chance).run(autoscaler), autoscaler


@pytest.mark.slow
def test_a_day_has_few_rescales() -> None:
    """Complaint: more than 20 a day. A day with its night, noise, and five crowds."""
    chance = Random(7)
    spikes = tuple(sorted(chance.uniform(0, DAY) for _ in range(5)))
    shape = load_curves.day(50, 300, spikes)
    load = curve("day", DAY, shape, chance, noise=0.1)
    plant = PlantSettings(overhead=1.0, row_seconds=0.015, gc_chance=0.01, gc_seconds=3.0)
    autoscaler = SimulatedAutoscaler(AutoscaleSettings("act", 1, 20, latency_target=3.0))
    course = Plant(plant, load, 4, chance, target=3.0).run(autoscaler, each=2.0)
    assert len(course.changes) <= 20, course.changes
    assert course.late_share < 0.08  # with garbage collections, as long as the target
    assert course.worker_seconds < DAY * max(change.after for change in course.changes)


def test_no_growth_because_the_source_is_slow() -> None:
    """A limit of rows a batch: 200 rows/s come, 60 are taken, and workers have time."""
    course, autoscaler = steady(4, 300, 200, least=4, batch_rows_max=25)
    assert not [change for change in course.changes if change.after > change.before]
    assert autoscaler.decisions[-1].rule is Rule.SOURCE_SLOW


def test_no_shrinking_during_a_backlog() -> None:
    """The rows of an hour wait; the load is little, and batches are full until they are gone."""
    chance = Random(3)
    load = curve("backlog", 900, load_curves.flash_crowd(40, 25, 0, 60), chance)
    settings = AutoscaleSettings("act", 1, 6, 1.0, scale_down_interval=60.0)
    autoscaler = SimulatedAutoscaler(settings)
    course = Plant(PlantSettings(batch_rows_max=200), load, 6, chance).run(autoscaler)
    downs = [change for change in course.changes if change.after < change.before]
    gone = next(b.ended for b in course.batches if b.ended > 60 and b.lag_rows < 200)
    assert downs
    assert gone > 100
    assert min(change.at for change in downs) >= gone


def test_rates_are_not_overestimated_at_low_load() -> None:
    """At little load rows cost half: a shrink on that would have to be taken back."""
    chance = Random(5)
    shape = load_curves.step(40, 1, 0)
    load = curve("little", 1500, shape, chance, 0.05)
    settings = AutoscaleSettings("act", 1, 12, 1.0, scale_down_interval=60.0)
    autoscaler = SimulatedAutoscaler(settings)
    plant = PlantSettings(cheap_when_idle=0.6)
    course = Plant(plant, load, 12, chance).run(autoscaler)
    assert all(change.after < change.before for change in course.changes), course.changes
    assert all(2 * change.after >= change.before for change in course.changes[:1])
    assert course.late_share < 0.01


def test_garbage_collection_is_not_load() -> None:
    """Every twentieth batch takes four times as long."""
    course, _ = steady(4, 1200, 220, gc_chance=0.05, gc_seconds=2.5)
    assert not course.changes


def test_a_failed_step_does_not_oscillate() -> None:
    """Two cores: more than two workers share what two do."""
    course, autoscaler = steady(2, 3600, 230, parallel_max=2)
    rules = [change.what.partition(":")[0] for change in course.changes]
    assert rules[:2] == ["up", "taken-back"]
    assert len(course.changes) <= 6, course.changes
    assert course.changes[1].after == 2
    assert any(d.rule is Rule.REMEMBERED for d in autoscaler.decisions)


def test_more_workers_do_not_help_beside_much_overhead() -> None:
    course, autoscaler = steady(2, 300, 100, overhead=1.5)
    assert not course.changes
    assert autoscaler.decisions[-1].rule is Rule.CANNOT_HELP


def test_a_single_hot_key_group_is_named() -> None:
    chance = Random(2)
    load = curve("hot", 300, lambda _: 200, chance, 0.05)
    autoscaler = SimulatedAutoscaler(AutoscaleSettings("act", 1, 12, 1.0))
    weights = [60.0] + [1.0] * 63
    Plant(PlantSettings(), load, 4, chance, lambda _: weights).run(autoscaler)
    named = [d for d in autoscaler.decisions if d.rule is Rule.HOT_GROUP]
    assert named
    assert "Key group 0 (on w1) alone has 49% of the rows" in named[-1].reason


def test_cheaper_than_the_peak_and_better_than_a_threshold() -> None:
    """A flash crowd: fewer late rows than the threshold rule, fewer worker-seconds than static."""
    found = replace(
        trials.crowd_trial(3),
        plant=PlantSettings(),
        start=2,
        load=curve("c", 1200, load_curves.flash_crowd(100, 5, 200, 180), Random(1), 0.05),
    )
    ours, _ = found.run()
    threshold, _ = found.run(ThresholdRule(1, 24))
    peak = found.static(best_static(found, 500))
    assert ours.late_share < threshold.late_share
    assert ours.worker_seconds < peak.worker_seconds
