"""What the figures of a rescale benchmark say about its targets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.loadtest.latency import median
from anabranch_bench.bench.comparison import Pick, growth, judged, left_out, ratios
from anabranch_bench.bench.rescale_runs import NATIVE, Run

PEAK_RATIO_MAX = 1.25
MEAN_RATIO_MAX = 1.1
THROUGHPUT_RATIO_MIN = 0.95
STOP_RESTART_FRACTION = 1 / 10
NATIVE_FRACTION = 1 / 20
CLEARLY_BELOW = 0.8
COPY_FRACTION_MIN = 0.5
STEADY_RATIO_MAX = 1.01
ABSOLUTE_PEAK_SECONDS_MAX = 2.4
JUDGED_BYTES_MIN = 1.9e9
"""The targets are for such states; ways that stop and ways that do not are alike if it is small."""
JUDGED_KEYS_MIN = 5_000_000
"""Of the absolute target."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: met, missed or (None) not measured or not to be judged by these figures."""

    name: str
    target: str
    figures: str
    passed: bool | None

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def __str__(self) -> str:
        if self.passed is None:
            figures = "not measured" if self.figures in ("", "-") else f"not judged: {self.figures}"
            return f"----  {self.name}: {figures} (target: {self.target})"
        word = "PASS" if self.passed else "FAIL"
        return f"{word}  {self.name}: {self.figures} (target: {self.target})"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of repeated figures."""

    median: float
    least: float
    greatest: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of the values that are numbers."""
        numbers = [v for v in values if math.isfinite(v)]
        if not numbers:
            return cls(math.nan, math.nan, math.nan, 0)
        return cls(median(numbers), min(numbers), max(numbers), len(numbers))

    def text(self, digits: int = 2, unit: str = "") -> str:
        """The median; the range too if there is one."""
        shown = f"{self.median:.{digits}f}{unit}"
        if self.n > 1:
            shown += f" [{self.least:.{digits}f} to {self.greatest:.{digits}f}]"
        return shown


@dataclass(frozen=True, slots=True)
class MoveRate:
    """Unpaced moves (bytes, seconds) and plain copies of as many bytes (bytes a second)."""

    strategy: str
    moves: tuple[tuple[int, float], ...]
    copies: tuple[float, ...]

    @property
    def rates(self) -> list[float]:
        """Bytes a second of each move."""
        return [size / seconds for size, seconds in self.moves if seconds]


@dataclass(frozen=True, slots=True)
class SteadyCost:
    """Seconds of the same batches with the default key groups and bins, and with the coarsest."""

    fine: tuple[float, ...]
    coarse: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """Batch by batch: they ran in turns, so both met the same disturbances."""
        return [f / c for f, c in zip(self.fine, self.coarse, strict=True)]

    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median ratio, from order statistics."""
        ordered = sorted(self.ratios)
        n = len(ordered)
        skip = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)) - 1)
        return ordered[skip], ordered[n - 1 - skip]


def peaks(runs: Sequence[Run], label: str) -> Spread:
    """Peak latency during the move."""
    found = (r.during() for r in judged(runs, label))
    return Spread.of(latency.peak for latency in found if latency)


def judge_live(runs: Sequence[Run]) -> list[Verdict]:
    """Against the control run, and against the ways that stop."""
    main = [r for r in runs if r.part == "strategies"]
    rate = Spread.of(ratios(main, "live", lambda x: x.throughput))
    verdicts = [
        _to_control(main, "peak", lambda x: x.peak, PEAK_RATIO_MAX),
        _to_control(main, "mean", lambda x: x.mean, MEAN_RATIO_MAX),
        Verdict(
            "live: throughput to control's",
            f"unchanged: at least {THROUGHPUT_RATIO_MIN} times",
            rate.text(3, " times") if rate.n else "-",
            rate.median >= THROUGHPUT_RATIO_MIN if rate.n else None,
        ),
    ]
    live = peaks(main, "live")
    for other, fraction in (("stop-restart", STOP_RESTART_FRACTION), (NATIVE, NATIVE_FRACTION)):
        name = "Spark's native way" if other == NATIVE else other
        theirs = peaks(main, other)
        measured = bool(live.n and theirs.n)
        ratio = live.median / theirs.median if measured else math.nan
        figures = f"{ratio:.3f} ({live.text(2, ' s')} to {theirs.text(2, ' s')})"
        verdicts.append(
            Verdict(
                f"live: peak latency to that of {name}",
                f"at most {fraction:g}",
                figures if measured else "-",
                ratio <= fraction if measured and _is_large(main) else None,
            )
        )
    return verdicts


def _to_control(main: Sequence[Run], name: str, pick: Pick, limit: float) -> Verdict:
    during = Spread.of(ratios(main, "live", pick))
    before, after = (Spread.of(ratios(main, "live", pick, when)) for when in ("before", "after"))
    grown = Spread.of(growth(main, "live", pick))
    figures = "-"
    if during.n:
        figures = (
            f"{during.text(2, ' times')}; before the move {before.text(2)}; "
            f"growth from then on {grown.text(2)}; after the move {after.text(2)}"
        )
    if alone := left_out(main, "live"):
        figures = f"{figures}; {alone}" if during.n else alone
    passed = during.median <= limit if during.n and _is_large(main) else None
    return Verdict(
        f"live: {name} latency to control's", f"at most {limit:g} times", figures, passed
    )


def _is_large(runs: Sequence[Run]) -> bool:
    return max((r.state_bytes for r in runs), default=0) >= JUDGED_BYTES_MIN


def judge_others(runs: Sequence[Run]) -> list[Verdict]:
    """Strategies that fetch on demand against those that block."""
    main = [r for r in runs if r.part == "strategies"]
    blocking = {name: peaks(main, name) for name in ("order-unaware", "pause")}
    known = [s.median for s in blocking.values() if s.n]
    verdicts = []
    for name in ("meces", "drrs", "lazy"):
        mine = peaks(main, name)
        measured = bool(mine.n and len(known) == len(blocking))
        others = ", ".join(f"{other} {s.text(2, ' s')}" for other, s in blocking.items())
        verdicts.append(
            Verdict(
                f"{name}: peak latency clearly below the blocking strategies'",
                f"at most {CLEARLY_BELOW} of the lower one",
                f"{mine.text(2, ' s')} to {others}" if measured else "-",
                mine.median <= CLEARLY_BELOW * min(known) if measured and _is_large(main) else None,
            )
        )
    return verdicts


def judge_series(runs: Sequence[Run]) -> list[Verdict]:
    """Whether the latency under `live` depends on the size of the state."""
    series = [r for r in runs if r.part == "series"]
    sizes = sorted({r.state_bytes for r in series})
    by_size = {size: [r for r in series if r.state_bytes == size] for size in sizes}
    found = {s: Spread.of(ratios(some, "live", lambda x: x.peak)) for s, some in by_size.items()}
    own = {s: peaks(some, "live") for s, some in by_size.items()}
    measured = len(sizes) > 1 and all(s.n for s in found.values())
    figures = "; ".join(
        f"{size / 1e9:.1f} GB: {own[size].text(2, ' s')}, {found[size].text(2)} times control"
        for size in sizes
    )
    passed = None
    if measured:
        worst = max(s.median for s in found.values())
        passed = worst <= PEAK_RATIO_MAX if _is_large(series) else None
        # For people: the ratio of two peaks of chance judges nothing.
        growth = found[sizes[-1]].median / found[sizes[0]].median
        figures += f"; times control, largest to smallest state {growth:.2f}"
    if alone := left_out(series, "live"):
        figures = f"{figures}; {alone}" if measured else alone
    target = f"at most {PEAK_RATIO_MAX} times control at each size"
    return [
        Verdict(
            "live: peak latency by state size",
            target,
            figures if measured or alone else "-",
            passed,
        )
    ]


def judge_move(move: MoveRate | None) -> list[Verdict]:
    """Duration of an unpaced move."""
    name = "unpaced move to a plain Arrow Flight copy of the same bytes"
    target = f"at least {COPY_FRACTION_MIN} of its rate"
    if move is None or not move.rates or not move.copies:
        return [Verdict(name, target, "-", None)]
    copy = Spread.of(rate / 1e6 for rate in move.copies)
    mine = Spread.of(rate / 1e6 for rate in move.rates)
    seconds = Spread.of(seconds for _, seconds in move.moves)
    size = median([float(size) for size, _ in move.moves]) / 1e6
    fraction = mine.median / copy.median
    figures = (
        f"{fraction:.2f} ({move.strategy}: {size:,.0f} MB in {seconds.text(2, ' s')}, "
        f"{mine.text(0, ' MB/s')}; copy {copy.text(0, ' MB/s')})"
    )
    return [Verdict(name, target, figures, fraction >= COPY_FRACTION_MIN)]


def judge_steady(cost: SteadyCost | None, runs: Sequence[Run]) -> list[Verdict]:
    """What being reconfigurable costs when nothing is reconfigured."""
    name = "steady state: default key groups and bins to the coarsest"
    target = "within 1 %"
    verdicts = [Verdict(name, target, "-", None)]
    if cost is not None and cost.fine:
        ratio, (low, high) = median(cost.ratios), cost.interval()
        figures = (
            f"{ratio:.3f} times the batch duration, 95 % of medians in [{low:.3f} to {high:.3f}], "
            f"{len(cost.fine)} pairs"
        )
        # Within the spread of the target: neither met nor missed.
        passed = ratio <= STEADY_RATIO_MAX or (None if low <= STEADY_RATIO_MAX else False)
        verdicts = [Verdict(name, target, figures, passed)]
    seen = {id(r.timeline or r): r for r in runs if r.peers is not None}.values()
    quiet = [r.peers or 0 for r in seen if r.case.strategy != "rhino"]
    rhino = [r.peers or 0 for r in seen if r.case.strategy == "rhino"]
    looks = sum(r.peer_samples for r in seen if r.case.strategy != "rhino")
    most = max(quiet, default=0)
    figures = f"{most} connections between workers in {len(quiet)} runs, {looks} looks"
    if rhino:
        figures += f" (rhino: {max(rhino)})"
    verdicts.append(
        Verdict(
            "no background traffic before a reconfiguration",
            "no connection between workers, except under rhino",
            figures,
            max(quiet) == 0 if quiet else None,
        )
    )
    return verdicts


def judge_absolute(runs: Sequence[Run]) -> list[Verdict]:
    """Peak latency in seconds at the given size and rate."""
    some = [r for r in runs if r.part == "absolute"]
    peak = peaks(some, "live")
    is_judged = peak.n and some[0].keys >= JUDGED_KEYS_MIN
    passed = peak.median < ABSOLUTE_PEAK_SECONDS_MAX if is_judged else None
    rate = f" at {some[0].rate:,.0f} rows/s" if some else ""
    keys = f", {some[0].keys:,} keys" if some else ""
    return [
        Verdict(
            f"live: peak latency in absolute terms{rate}{keys}",
            f"below {ABSOLUTE_PEAK_SECONDS_MAX} s",
            peak.text(2, " s") if peak.n else "-",
            passed,
        )
    ]
