"""STATS, one message after the other."""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch_bench.workloads.riotbench.accumulation import SHARDS
from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.distinct import new_sketch
from anabranch_bench.workloads.riotbench.kalman import FIRST_ERROR, PROCESS_NOISE, SENSOR_NOISE
from anabranch_bench.workloads.riotbench.oracle.messages import read
from anabranch_bench.workloads.riotbench.regression import WIDTH

PlotPoint = tuple[int, int, str, int, str, str, int, float]

POINTS = pa.schema(
    [
        ("shard", pa.int32()),
        ("flush", pa.int64()),
        ("statistic", pa.string()),
        ("id", pa.int64()),
        ("sensor", pa.string()),
        ("field", pa.string()),
        ("step", pa.int32()),
        ("value", pa.float64()),
    ]
)


@dataclass
class _Series:
    """What is remembered of one field of one sender."""

    block: list[float] = field(default_factory=list)
    estimate: float = 0.0
    error: float = FIRST_ERROR
    smooth: deque[float] = field(default_factory=lambda: deque(maxlen=WIDTH))
    seen: int = 0

    def average(self, value: float, width: int) -> list[float]:
        """The mean of a block that this value completes."""
        self.block.append(value)
        if len(self.block) < width:
            return []
        mean = sum(self.block) / width
        self.block.clear()
        return [mean]

    def trend(self, value: float, horizon: int) -> list[float]:
        """Kalman filter, then the textbook formulas of a regression line."""
        prior = self.error + PROCESS_NOISE
        gain = prior / (prior + SENSOR_NOISE)
        self.estimate += gain * (value - self.estimate)
        self.error = (1 - gain) * prior
        self.smooth.append(self.estimate)
        self.seen += 1
        if self.seen <= WIDTH:
            return []
        places = range(self.seen - WIDTH + 1, self.seen + 1)
        mean_x, mean_y = sum(places) / WIDTH, sum(self.smooth) / WIDTH
        over = sum((x - mean_x) * (y - mean_y) for x, y in zip(places, self.smooth, strict=True))
        slope = over / sum((x - mean_x) ** 2 for x in places)
        return [mean_y + slope * (self.seen + j - mean_x) for j in range(1, horizon + 1)]


class _Accumulators:
    """Results of each statistic and shard, in lots of a size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[tuple[str, int], list[tuple[int, str, str, list[float]]]] = {}
        self._flushes: dict[tuple[str, int], int] = defaultdict(int)
        self.points: list[PlotPoint] = []

    def add(self, statistic: str, number: int, sensor: str, name: str, found: list[float]) -> None:
        """One result; nothing happens without numbers."""
        if not found:
            return
        key = (statistic, zlib.crc32(sensor.encode()) % SHARDS)
        lot = self._open.setdefault(key, [])
        lot.append((number, sensor, name, found))
        if len(lot) == self._size:
            flush = self._flushes[key]
            self.points += [
                (key[1], flush, statistic, number, sensor, name, step, value)
                for number, sensor, name, values in lot
                for step, value in enumerate(values)
            ]
            self._flushes[key] += 1
            lot.clear()


def expected_points(dataset: Dataset, events: Any) -> pa.Table:
    """The points of all charts."""
    series: dict[tuple[str, str], _Series] = defaultdict(_Series)
    sketch = new_sketch()
    accumulators = _Accumulators(dataset.flush_after)
    for message in read(dataset, events):
        # Results of one message are in the order of their fields' names.
        for name in sorted(dataset.observed):
            value = message.number(name)
            own = series[message.sensor, name]
            average = own.average(value, dataset.average_window)
            accumulators.add("average", message.id, message.sensor, name, average)
            trend = own.trend(value, dataset.horizon)
            accumulators.add("trend", message.id, message.sensor, name, trend)
        sketch.update(message.sensor)
        accumulators.add("distinct", message.id, "all", "senders", [sketch.get_estimate()])
    columns = list(zip(*accumulators.points, strict=True)) or [()] * len(POINTS)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, POINTS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=POINTS)
