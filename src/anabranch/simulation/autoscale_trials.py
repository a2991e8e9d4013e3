"""Trials of the autoscaler from seeds: a plant and a load, drawn at random, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.simulation import load_curves
from anabranch.simulation.controllers import SimulatedAutoscaler
from anabranch.simulation.load_curves import LoadCurve, Rate, curve
from anabranch.simulation.plant import Controller, Course, Plant, PlantSettings, Weights

WORKERS_MAX = 24
LATE_SHARE_MAX = 0.01
"""Of rows, in batches above the target: a number of workers is good enough below it."""
STATIC_SECONDS = 240
SETTLED_SECONDS = 300
"""After a change of the load, the plant has come to rest."""
NOISE_SETTLED_SECONDS = 1200
"""Until then it may still correct where it went: more workers share a batch less evenly."""
EMPTY: Mapping[str, Any] = {}
FAST = {"scale_down_interval": 60.0}
"""So that a trial of a step down is not mostly waiting."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One seed."""

    name: str
    seed: int
    plant: PlantSettings
    load: LoadCurve
    start: int
    """Workers at the beginning."""
    settings: AutoscaleSettings
    weights: Weights | None = None

    def run(self, controller: Controller | None = None) -> tuple[Course, SimulatedAutoscaler]:
        """With the autoscaler, or another controller."""
        autoscaler = SimulatedAutoscaler(self.settings)
        course = self.plant_of(self.start).run(controller or autoscaler)
        return course, autoscaler

    def static(self, workers: int) -> Course:
        """With so many workers all the time."""
        return self.plant_of(workers).run()

    def plant_of(self, workers: int) -> Plant:
        """In the same world, whoever decides."""
        target = self.settings.latency_target or 1.0
        chance = Random(self.seed + 1)
        return Plant(self.plant, self.load, workers, chance, self.weights, target)


def best_static(trial: Trial, rate: float) -> int:
    """The smallest number of workers that keeps the target at a steady rate.

    Begun with what the model says, with batches as they are when they have settled.
    """
    plant, target = trial.plant, trial.settings.latency_target or 1.0
    load = curve("steady", STATIC_SECONDS, lambda _: rate, Random(trial.seed), 0.0)
    steady = replace(trial, load=load, plant=replace(plant, gc_chance=0.0))
    n = max(1, math.floor(rate * plant.row_seconds / (1 - plant.overhead / target)))
    while n < WORKERS_MAX and steady.static(n).late_share > LATE_SHARE_MAX:
        n += 1
    return n


def plant_from(random: Random) -> PlantSettings:
    """Any ordinary one."""
    return PlantSettings(
        overhead=random.uniform(0.1, 0.5),
        row_seconds=10 ** random.uniform(-4, -1.5),
        noise=random.uniform(0.0, 0.1),
        gc_chance=random.choice([0.0, 0.02]),
        gc_seconds=random.uniform(0.3, 1.5),
        move_seconds=random.uniform(0.5, 8.0),
        key_groups=random.choice([64, 128, 256]),
        key_draw=random.uniform(0.0, 0.2),
    )


def trial(
    name: str,
    seed: int,
    seconds: int,
    rate: Callable[[Random, float], Rate],
    noise: float = 0.05,
    workers: int | None = None,
    settings: Mapping[str, Any] = EMPTY,
) -> Trial:
    """`rate` makes the load from what one worker does in a second, beside the overhead."""
    random = Random(seed)
    plant = plant_from(random)
    one = (1 - plant.overhead) / plant.row_seconds
    shape = rate(random, one)
    load = curve(name, seconds, shape, random, noise)
    wanted = AutoscaleSettings("act", 1, WORKERS_MAX, 1.0).changed(settings)
    found = Trial(name, seed, plant, load, workers or 1, wanted)
    if workers is not None:
        return found
    # It starts where it would be.
    return replace(found, start=settled(found, shape(0.0), noise))


def settled(of: Trial, rate: float, noise: float) -> int:
    """Where the autoscaler goes from half of what is needed, at a steady rate."""
    steady = curve("steady", SETTLED_SECONDS, lambda _: rate, Random(of.seed), noise)
    before = replace(of, load=steady, start=max(1, best_static(of, rate) // 2))
    course, _ = before.run()
    return course.workers_at(math.inf, before.start)


def step_trial(seed: int, factor: float) -> Trial:
    """The load goes to so many times as much, and stays."""

    def rate(random: Random, one: float) -> Rate:
        low = one * random.uniform(0.6, 5.5) * min(1.0, 1 / factor)
        return load_curves.step(low, factor, 60)

    return trial(f"step x{factor:.2g}", seed, 420, rate, settings=FAST)


def noise_trial(seed: int) -> Trial:
    """An hour of up to 20% more or less, after NOISE_SETTLED_SECONDS of it."""

    def rate(random: Random, one: float) -> Rate:
        base = one * random.uniform(0.6, 7)
        return lambda _: base

    return trial("noise", seed, 3600 + NOISE_SETTLED_SECONDS, rate, noise=0.2)


def sine_trial(seed: int) -> tuple[Trial, float]:
    """With its period, of minutes."""
    period = Random(seed + 2).choice([300.0, 600.0, 1200.0])

    def rate(random: Random, one: float) -> Rate:
        low = one * random.uniform(0.5, 2)
        return load_curves.sine(low, low * random.uniform(2, 5), period)

    return trial("sine", seed, 4800, rate), period


def ramp_trial(seed: int) -> Trial:
    """Evenly up within minutes."""

    def rate(random: Random, one: float) -> Rate:
        base = one * random.uniform(0.5, 3)
        return load_curves.ramp(base, random.uniform(2, 5), 60, random.uniform(60, 600))

    return trial("ramp", seed, 900, rate)


def crowd_trial(seed: int) -> Trial:
    """Many times the load, for some minutes."""

    def rate(random: Random, one: float) -> Rate:
        base = one * random.uniform(0.5, 2)
        return load_curves.flash_crowd(base, random.uniform(3, 8), 60, random.uniform(60, 240))

    return trial("flash crowd", seed, 900, rate)


def drift_trial(seed: int) -> Trial:
    """A steady load whose hot keys wander: some key groups get much more than others."""

    def rate(random: Random, one: float) -> Rate:
        base = one * random.uniform(2.2, 3.2)
        return lambda _: base

    found = trial("skew drift", seed, 1200, rate)
    random = Random(seed + 2)
    groups = found.plant.key_groups
    hot = random.uniform(2.0, 4.0)

    def weights(at: float) -> list[float]:
        """After two minutes, every second or third key group of the first worker is hot."""
        place = 0 if at < 600 else 1
        is_hot = [at > 120 and g % found.start == place for g in range(groups)]
        return [hot if each else 1.0 for each in is_hot]

    return replace(found, weights=weights)


def death_trial(seed: int) -> Trial:
    """A steady load, and workers that die."""

    def rate(random: Random, one: float) -> Rate:
        base = one * random.uniform(0.6, 6)
        return lambda _: base

    found = trial("dead workers", seed, 1500, rate)
    random = Random(seed + 2)
    deaths = tuple(sorted(random.uniform(100, 1400) for _ in range(4)))
    plant = replace(found.plant, deaths=deaths, recovery_seconds=random.uniform(1, 10))
    return replace(found, plant=plant)
