"""Late rows are dropped while key groups move: the same ones as without a move, and as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Batches, Feed, Watched, check_equal, plain, play

from anabranch import StateService, agg
from anabranch.coordinator import move_runner

WAIT = 120
KEYS = 24
"""Enough for each worker to have some."""
DELAY, WINDOW = 5, 10

MOMENTS = [
    [1, 5, 11, 18],
    [25, 30],
    # From here on a move runs.
    [3, 12, 24, 26, 35],
    # It has ended.
    [2, 29, 31, 44],
    [90],
]
"""Seconds of event time, batch by batch; every key has a row at each."""
MOVED, ENDED = 2, 3

INPUT = "k long, number long, bit long, t double"
SEEN = "kind string, k long, a long, b long"

Operator = Callable[[DataFrame], DataFrame]


class Seen(StatefulProcessor):
    """Tells every row that is not dropped, and how many there were."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        state = self._count.get()
        count = state[0] if state else 0
        for number in sorted(row.number for row in rows):
            count += 1
            yield Row(kind="seen", k=key[0], a=number, b=count)
        self._count.update((count,))


def batches() -> list[list[dict[str, Any]]]:
    """The moments with their numbers; each has a bit of its own in sums."""
    found, number = [], 0
    for moments in MOMENTS:
        numbered = list(enumerate(moments, number))
        number += len(moments)
        found.append(
            [{"k": k, "number": n, "bit": 1 << n, "t": t} for n, t in numbered for k in range(KEYS)]
        )
    return found


def on_time(is_late: Callable[[int, int], bool]) -> set[int]:
    """Numbers of the moments that are not late by this rule of moment and watermark."""
    found, number, watermark = set(), 0, 0
    for moments in MOMENTS:
        found |= {n for n, t in enumerate(moments, number) if not is_late(t, watermark)}
        number += len(moments)
        watermark = max(watermark, *(t - DELAY for t in moments))
    return found


def sums(windows: DataFrame) -> DataFrame:
    return windows.select(
        F.lit("window").alias("kind"), "k", F.col("window.start").cast("long").alias("a"), "b"
    )


def native_windows(df: DataFrame) -> DataFrame:
    window = F.window("ts", f"{WINDOW} seconds")
    return sums(df.groupBy("k", window).agg(F.sum("bit").alias("b")))


def native(df: DataFrame) -> DataFrame:
    seen = df.groupBy("k").transformWithState(Seen(), SEEN, "Append", "EventTime")
    return seen.union(native_windows(df))


def on(service: StateService) -> Operator:
    def ours(df: DataFrame) -> DataFrame:
        seen = service.group_by(df, "k").transformWithState(
            Seen(), SEEN, "Append", "EventTime", name="seen", own_stage=True
        )
        window = agg.tumbling("ts", f"{WINDOW} seconds")
        windows = service.group_by(df, "k", window=window).aggregate(
            b=agg.sum("bit"), outputMode="append", name="windows", own_stage=True
        )
        return seen.union(sums(windows))

    return ours


def seen_in(watched: Watched) -> set[int]:
    """Numbers of the moments whose rows reached the processor; those of all keys or of none."""
    rows = [row for batch in watched.rows.values() for row in batch if row.kind == "seen"]
    found = {row.a for row in rows}
    assert len(rows) == KEYS * len(found)
    return found


def summed_in(watched: Watched) -> set[int]:
    """The same for the windows, whose sums have a bit for each moment."""
    found: dict[int, int] = {}
    for row in (row for batch in watched.rows.values() for row in batch if row.kind == "window"):
        found[row.k] = found.get(row.k, 0) + row.b
    assert set(found) == set(range(KEYS))
    (bits,) = set(found.values())
    return {number for number in range(bits.bit_length()) if bits >> number & 1}


def of_kinds(watched: Watched, kinds: set[str]) -> Batches:
    return {
        batch: sorted(repr(plain(row)) for row in rows if row.kind in kinds)
        for batch, rows in sorted(watched.rows.items())
    }


def epochs_of(watched: Watched, number: int) -> set[int]:
    return {
        batch
        for batch, rows in watched.rows.items()
        if any(row.kind == "seen" and row.a == number for row in rows)
    }


def dropped_by(service: StateService) -> list[int]:
    """Late rows, as both operators count them."""
    operators = service.status()["operators"]
    return [
        sum(batch["stats"]["rows_dropped_late"] for batch in operators[name]["batches"])
        for name in ("seen", "windows")
    ]


# Spark's Python operator takes its time.
@pytest.mark.soak
@pytest.mark.parametrize("native", [native_windows, native])
def test_a_move_drops_the_same_rows(
    spark: SparkSession, tmp_path: Path, native: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While Spark's own operator takes its time, the service's batches must not look idle: key
    # groups would move at once, between two batches.
    monkeypatch.setattr(move_runner, "IDLE_SECONDS", 20.0)
    feed, script = Feed(spark, tmp_path, INPUT), batches()
    with ExitStack() as stack:
        still, moved = (
            stack.enter_context(
                StateService(spark, str(tmp_path / name), workers=2, key_groups=16, fsync=False)
            )
            for name in ("still", "moved")
        )
        queries = []
        for at, operator in enumerate((on(moved), on(still), native)):
            df = feed.stream().withColumn("ts", F.timestamp_seconds("t"))
            result = operator(df.withWatermark("ts", f"{DELAY} seconds"))
            queries.append(stack.enter_context(Watched(result, tmp_path / f"check-{at}", "append")))
        play(feed, script[:MOVED], *queries)
        # Each wave waits for a batch, so that it lasts for some of them.
        move = moved.rescale(3, wave=2)
        play(feed, script[MOVED:ENDED], *queries)
        assert move.wait(WAIT)
        play(feed, script[ENDED:], *queries)
        report = move.report()
        counted = dropped_by(moved), dropped_by(still)
    with_move, without, by_spark = queries
    check_equal(without.batches(), with_move.batches())
    kinds = {row.kind for batch in by_spark.rows.values() for row in batch}
    check_equal(by_spark.batches(), of_kinds(with_move, kinds))

    assert report.outcome == "done"
    assert report.groups == 5
    first_late = sum(map(len, MOMENTS[:MOVED]))
    during = epochs_of(with_move, first_late + MOMENTS[MOVED].index(26))
    assert during <= {batch["epoch"] for batch in report.batches}, "late rows came before or after"

    all_but_last = set(range(sum(map(len, MOMENTS)) - 1))
    seen, summed = seen_in(with_move), summed_in(with_move)
    assert seen == on_time(lambda t, watermark: t <= watermark)
    closed = on_time(lambda t, watermark: t // WINDOW * WINDOW + WINDOW <= watermark)
    assert summed == closed & all_but_last, "the last window is open"
    dropped = [KEYS * len(all_but_last - found) for found in (seen, summed)]
    assert dropped == [KEYS * 5, KEYS * 4]
    assert counted == (dropped, dropped)
