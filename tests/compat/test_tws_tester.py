"""The same processors and inputs on PySpark's own TwsTester and on our engine."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from tests.unit.processor.rows.processors import Alarm, Collector, Counter
from tests.unit.processor.rows.support import Service, define

tws_tester = pytest.importorskip("pyspark.sql.streaming.tws_tester", reason="since Spark 4.2")

KV = "k long, v long"
KT = "k long, text string"
KC = "k long, c long"


def batches(seed: int, count: int = 12) -> list[list[tuple[int, int]]]:
    chance = random.Random(seed)
    values = [1, 1, 2, 3, 13, 99]
    return [
        [(chance.randrange(5), chance.choice(values)) for _ in range(chance.randrange(9))]
        for _ in range(count)
    ]


def by_key(rows: list[tuple[int, int]]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for k, v in rows:
        found.setdefault(k, []).append(Row(k=k, v=v))
    return found


def outcome(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("processor", "output"), [(Counter, KC), (Collector, KT)])
def test_rows(processor: type[StatefulProcessor], output: str, seed: int) -> None:
    tester = tws_tester.TwsTester(processor())
    worker = Service(define(processor(), KV, ["k"], output)).with_types(KV)
    for rows in batches(seed):
        want = [row for key, given in by_key(rows).items() for row in tester.test(key, given)]
        assert outcome(worker.batch(rows)) == outcome(want)


@pytest.mark.parametrize("seed", range(5))
def test_processing_time_timers(seed: int) -> None:
    tester = tws_tester.TwsTester(Alarm(), timeMode="ProcessingTime")
    worker = Service(define(Alarm(), KV, ["k"], KC, "processingtime")).with_types(KV)
    now_ms = 0
    for rows in batches(seed):
        now_ms += 4
        # Spark handles rows before timers, the tester fires when the clock is set.
        fired = [tuple(row) for row in tester.setProcessingTime(now_ms)]
        early = worker.batch(now_ms=now_ms)
        assert outcome(early) == sorted(fired)
        want = [row for key, given in by_key(rows).items() for row in tester.test(key, given)]
        assert outcome(worker.batch(rows, now_ms=now_ms)) == outcome(want)


def test_event_time_timers_and_late_rows() -> None:
    schema = "k long, at timestamp"
    tester = tws_tester.TwsTester(
        Alarm(event_time=True), timeMode="EventTime", eventTimeExtractor=lambda row: row.at
    )
    definition = define(Alarm(event_time=True), schema, ["k"], KC, "eventtime", event_time="at")
    worker = Service(definition).with_types(schema)
    watermark_ms = 0
    for number, rows in enumerate(batches(3)):
        given = [(k, watermark_ms + v - 2) for k, v in rows]
        want = [
            row
            for key in sorted({k for k, at in given if at > watermark_ms})
            for row in tester.test(key, [Row(k=k, at=at) for k, at in given if k == key])
        ]
        arrow = [(k, at * 1000) for k, at in given]
        assert outcome(worker.batch(arrow, watermark_ms=watermark_ms)) == outcome(want), number
        watermark_ms += 7
        want = tester.setWatermark(watermark_ms)
        assert outcome(worker.batch(watermark_ms=watermark_ms)) == outcome(want)


def test_initial_state() -> None:
    initial = [(1, Row(start=10)), (2, Row(start=5)), (2, Row(start=6))]
    tester = tws_tester.TwsTester(Counter(), initialStateRow=initial)
    schema = "k long, start long"
    definition = define(Counter(), KV, ["k"], KC, initial_schema=schema)
    worker = Service(definition).with_types(KV, schema)
    rows = [(1, 0), (3, 0), (1, 0)]
    want = [row for key, given in by_key(rows).items() for row in tester.test(key, given)]
    found = worker.batch(rows, initial=[(key, row.start) for key, row in initial])
    assert outcome(found) == outcome(want)
    assert outcome(worker.batch([(2, 0)])) == outcome(tester.test(2, [Row(k=2, v=0)]))


class PandasCounter(Counter):
    """Counts rows per key, in DataFrames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        import pandas as pd

        for frame in rows:
            stored = self.count.get()
            total = (stored[0] if stored else 0) + int(frame["v"].sum())
            self.count.update((total,))
            yield pd.DataFrame({"c": [total], "k": key})


def test_pandas() -> None:
    import pandas as pd

    tester = tws_tester.TwsTester(PandasCounter())
    definition = define(PandasCounter(), KV, ["k"], KC, use_pandas=True)
    worker = Service(definition).with_types(KV)
    for rows in batches(7):
        want = []
        for key, given in by_key(rows).items():
            frame = tester.testInPandas(key, pd.DataFrame(given, columns=["k", "v"]))
            want += frame[["k", "c"]].itertuples(index=False)
        assert outcome(worker.batch(rows)) == outcome(want)
