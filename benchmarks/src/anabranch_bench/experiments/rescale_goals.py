"""What the figures of `anabranch bench rescale` say about its goals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.loadtest.latency import median
from anabranch_bench.results.cases import NATIVE
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.verdicts import LIMITS, Spread, Verdict, is_beyond, peaks

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


def judge_live(runs: RunSet) -> list[Verdict]:
    """Against the control run, and against the ways that stop."""
    main = runs.of_part("strategies")
    rate = Spread.of(main.ratios("live", "rows/s"), low_is_worse=True)
    verdicts = [
        _to_control(main, "peak"),
        _to_control(main, "mean"),
        Verdict(
            "live: throughput to control's",
            f"unchanged: at least {LIMITS['rows/s']} times",
            rate.text(3, " times") if rate.n else "-",
            not is_beyond("rows/s", rate.median) if rate.n else None,
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


def _to_control(main: RunSet, name: str) -> Verdict:
    during = Spread.of(main.ratios("live", name))
    before, after = (Spread.of(main.ratios("live", name, when)) for when in ("before", "after"))
    grown = Spread.of(main.growth("live", name))
    figures = "-"
    if during.n:
        figures = (
            f"{during.text(2, ' times')}; before the move {before.text(2)}; "
            f"growth from then on {grown.text(2)}; after the move {after.text(2)}"
        )
    to_all = Spread.of(main.ratios_to_all("live", name))
    if during.n and to_all.n:
        # One control time of chance, beside both of two moves, would decide alone.
        figures += f"; to the median of all control times {to_all.text(2)}"
    if alone := main.left_out("live"):
        figures = f"{figures}; {alone}" if during.n else alone
    worse = max(during.median, to_all.median) if to_all.n else during.median
    passed = not is_beyond(name, worse) if during.n and _is_large(main) else None
    target = f"at most {LIMITS[name]:g} times"
    return Verdict(f"live: {name} latency to control's", target, figures, passed)


def _is_large(runs: RunSet) -> bool:
    return max((r.load.state_bytes for r in runs.runs), default=0) >= JUDGED_BYTES_MIN


def judge_others(runs: RunSet) -> list[Verdict]:
    """Strategies that fetch on demand against those that block."""
    main = runs.of_part("strategies")
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


def judge_series(runs: RunSet) -> list[Verdict]:
    """Whether the latency under `live` depends on the size of the state."""
    series, limit = runs.of_part("series"), LIMITS["peak"]
    loads = sorted(series.loads(), key=lambda load: load.state_bytes)
    found = [Spread.of(series.at(load).ratios("live", "peak")) for load in loads]
    measured = len(loads) > 1 and all(s.n for s in found)
    figures = "; ".join(
        f"{load.state_bytes / 1e9:.1f} GB: {peaks(series.at(load), 'live').text(2, ' s')}, "
        f"{times.text(2)} times control"
        for load, times in zip(loads, found, strict=True)
    )
    passed = None
    if measured:
        passed = max(s.median for s in found) <= limit if _is_large(series) else None
        # For people: the ratio of two peaks of chance judges nothing.
        growth = found[-1].median / found[0].median
        figures += f"; times control, largest to smallest state {growth:.2f}"
    if alone := series.left_out("live"):
        figures = f"{figures}; {alone}" if measured else alone
    target = f"at most {limit} times control at each size"
    shown = figures if measured or alone else "-"
    return [Verdict("live: peak latency by state size", target, shown, passed)]


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


def judge_steady(cost: SteadyCost | None, runs: RunSet) -> list[Verdict]:
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
    seen = {id(r.timeline or r): r for r in runs.runs if r.peers is not None}.values()
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


def judge_absolute(runs: RunSet) -> list[Verdict]:
    """Peak latency in seconds at the given size and rate."""
    some = runs.of_part("absolute")
    peak, loads = peaks(some, "live"), some.loads()
    is_judged = peak.n and loads[0].keys >= JUDGED_KEYS_MIN
    passed = peak.median < ABSOLUTE_PEAK_SECONDS_MAX if is_judged else None
    where = f" at {loads[0].rate:,.0f} rows/s, {loads[0].keys:,} keys" if loads else ""
    return [
        Verdict(
            f"live: peak latency in absolute terms{where}",
            f"below {ABSOLUTE_PEAK_SECONDS_MAX} s",
            peak.text(2, " s") if peak.n else "-",
            passed,
        )
    ]
