"""Verdicts: a target, the figures that speak for or against it, and one word."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anabranch_bench.results.comparison import LOW_IS_WORSE, RunSet
from anabranch_bench.results.medians import median_value
from anabranch_bench.results.run_result import INTERRUPTED

PEAK_RATIO_MAX = 1.25
MEAN_RATIO_MAX = 1.1
THROUGHPUT_RATIO_MIN = 0.95
LIMITS = {"peak": PEAK_RATIO_MAX, "mean": MEAN_RATIO_MAX, "rows/s": THROUGHPUT_RATIO_MIN}
"""Of figures during a move, as multiples of the control runs' in the same window."""

MET: dict[bool | None, str] = {True: "PASS", False: "FAIL", None: "----"}
SEAMLESS, NOISE, DISTURBED, UNCLEAR = "seamless", "noise", "disturbed", "unclear"
WRONG, FAILED, UNKNOWN = "WRONG", "failed", "-"

RULE = (
    f"seamless: during the move at most {PEAK_RATIO_MAX:g} times the control run's peak and "
    f"{MEAN_RATIO_MAX:g} times its mean latency in the same window, at least "
    f"{THROUGHPUT_RATIO_MIN:g} of its throughput, and results equal to the oracle's; noise: beyond "
    "that, but the control run has windows of that length that are as bad; disturbed: beyond both; "
    "unclear: before the move, when nothing differs, the mean latencies of the two runs are "
    f"already more than {MEAN_RATIO_MAX:g} times apart, so that neither verdict would mean anything"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: met, missed or (None) not measured or not to be judged by these figures."""

    name: str
    target: str
    figures: str
    passed: bool | None
    word: str = ""
    """More exact than met or missed."""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    @property
    def cell(self) -> str:
        """In a table that says what the target is."""
        return f"{self.word}: {self.figures}" if self.figures else self.word

    def __str__(self) -> str:
        figures = self.figures
        if self.passed is None:
            figures = "not measured" if figures in ("", "-") else f"not judged: {figures}"
        return f"{MET[self.passed]}  {self.name}: {figures} (target: {self.target})"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median (as in tables), least and greatest of repeated figures."""

    median: float
    least: float
    greatest: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float], low_is_worse: bool = False) -> Spread:
        """Of the values that are numbers."""
        numbers = [v for v in values if math.isfinite(v)]
        if not numbers:
            return cls(math.nan, math.nan, math.nan, 0)
        return cls(median_value(numbers, low_is_worse), min(numbers), max(numbers), len(numbers))

    def text(self, digits: int = 2, unit: str = "") -> str:
        """The median; the range too if there is one."""
        shown = f"{self.median:.{digits}f}{unit}"
        if self.n > 1:
            shown += f" [{self.least:.{digits}f} to {self.greatest:.{digits}f}]"
        return shown


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One figure of batches on both sides, ours and Spark's."""

    part: str
    unit: str
    ours: tuple[float, ...]
    spark: tuple[float, ...]
    target: str
    passed: bool
    ratio: float | None = None
    note: str = ""

    @classmethod
    def of_rates(
        cls,
        part: str,
        ours: tuple[float, ...],
        spark: tuple[float, ...],
        factor: float,
        target: str,
        note: str = "",
    ) -> SideBySide:
        """Rows a second; ours are to be so many times Spark's."""
        ratio = statistics.median(ours) / statistics.median(spark)
        return cls(part, "rows a second", ours, spark, target, ratio >= factor, ratio, note)

    @classmethod
    def of_seconds(
        cls, part: str, unit: str, ours: tuple[float, ...], spark: tuple[float, ...], target: str
    ) -> SideBySide:
        """Ours are to be no longer than Spark's."""
        ratio = statistics.median(ours) / statistics.median(spark)
        return cls(part, unit, ours, spark, target, ratio <= 1.0, ratio)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "part": self.part,
            "unit": self.unit,
            "anabranch": _summary(self.ours),
            "spark": _summary(self.spark),
            "ratio": self.ratio,
            "target": self.target,
            "passed": self.passed,
            "note": self.note,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> SideBySide:
        """What `to_json` was told of."""
        ours, spark = (
            tuple(told[side]["values"]) if told[side] else () for side in ("anabranch", "spark")
        )
        names = ("part", "unit", "target", "passed", "ratio", "note")
        return cls(ours=ours, spark=spark, **{name: told[name] for name in names})


def _summary(values: tuple[float, ...]) -> dict[str, Any] | None:
    if not values:
        return None
    known = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {**known, "n": len(values), "values": list(values)}


def peaks(runs: RunSet, label: str) -> Spread:
    """Peak latency during the move."""
    return Spread.of(latency.peak for latency in runs.phases(label, "during"))


def seamlessness(runs: RunSet, label: str) -> Verdict:
    """Whether nobody noticed the moves of a strategy, over all its repeats under one load."""

    def verdict(word: str, figures: str = "", passed: bool | None = None) -> Verdict:
        return Verdict(f"{label}: seamless", RULE, figures, passed, word)

    tried = runs.tried(label)
    failed = [r.error for r in tried if r.error and not r.is_interrupted]
    if failed:
        return verdict(FAILED, failed[0], False)
    wrong = [str(v) for r in tried for v in r.verifications if not v.is_right]
    if wrong:
        return verdict(WRONG, wrong[0], False)
    if tried and all(r.is_interrupted for r in tried):
        return verdict(INTERRUPTED)
    found = {name: runs.ratio(label, name) for name in LIMITS}
    if not tried or any(math.isnan(ratio) for ratio in found.values()):
        return verdict(UNKNOWN)
    level = runs.ratio(label, "mean", "before")
    if not 1 / MEAN_RATIO_MAX <= level <= MEAN_RATIO_MAX:
        return verdict(UNCLEAR, f"mean before x {level:.2f}")
    beyond = [name for name, ratio in found.items() if is_beyond(name, ratio)]
    clear = [name for name in beyond if _is_worse(name, found[name], runs.noise(label, name))]
    told = "; ".join(f"{name} x {found[name]:.2f}" for name in clear or beyond)
    word = DISTURBED if clear else NOISE if beyond else SEAMLESS
    return verdict(word, told, None if word == NOISE else word == SEAMLESS)


def is_beyond(name: str, ratio: float) -> bool:
    """Whether a figure is worse than its limit."""
    return _is_worse(name, ratio, LIMITS[name])


def _is_worse(name: str, ratio: float, limit: float) -> bool:
    """Also if there is no limit."""
    return not (ratio >= limit if name in LOW_IS_WORSE else ratio <= limit)
