"""STATS: averages, smoothed trends and the number of senders, collected into charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from anabranch_bench.workloads.contract import Output, Workload
from anabranch_bench.workloads.riotbench.accumulation import FLUSHED, Accumulator, shard_of
from anabranch_bench.workloads.riotbench.averages import BlockAverage
from anabranch_bench.workloads.riotbench.charts import ChartFolder, DrawCharts
from anabranch_bench.workloads.riotbench.distinct import DistinctApproxCount
from anabranch_bench.workloads.riotbench.kalman import KalmanFilter
from anabranch_bench.workloads.riotbench.observations import SERIES, ParseSeries, through
from anabranch_bench.workloads.riotbench.oracle.stats import expected_points
from anabranch_bench.workloads.riotbench.regression import SlidingRegression
from anabranch_bench.workloads.riotbench.streams import Messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from anabranch.service import StateService

TOLERANCE = 1e-9


class Stats(Workload):
    """Statistical summaries. What comes out are the points of all charts.

    With a folder for `charts`, they are drawn and archived too.
    """

    def __init__(self, stream: Messages, charts: str | None = None) -> None:
        self.name = f"riotbench stats {stream.dataset.name}"
        self.description = "Averages, trends and distinct senders of sensor values"
        self.events = stream
        self.outputs: Mapping[str, Output] = {"points": Output(tolerance=TOLERANCE)}
        self._stream = stream
        self._charts = charts

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """Three branches of one stream, and the accumulator that they meet in."""
        dataset = self._stream.dataset
        series = through(events, SERIES, ParseSeries(dataset))
        averages = service.group_by(series, "sensor", "field").process(
            BlockAverage(dataset.average_window),
            f"{SERIES}, average double",
            name="average",
            own_stage=True,
        )
        smooth = service.group_by(series, "sensor", "field").process(
            KalmanFilter(), SERIES, name="kalman"
        )
        trends = service.group_by(smooth, "sensor", "field").process(
            SlidingRegression(dataset.horizon),
            f"{SERIES}, predictions array<double>",
            name="regression",
            own_stage=True,
        )
        # One field stands for the message, so that a message counts once.
        once = series.where(F.col("field") == dataset.observed[0])
        senders = service.group_by(once, F.lit(dataset.name).alias("stream")).process(
            DistinctApproxCount(),
            "id long, at_ms long, count double",
            name="distinct",
            own_stage=True,
        )
        results = (
            _results(averages, "average", F.array("average"))
            .union(_results(trends, "trend", F.col("predictions")))
            .union(
                senders.select(
                    F.lit("distinct").alias("statistic"),
                    "id",
                    F.lit("all").alias("sensor"),
                    F.lit("senders").alias("field"),
                    "at_ms",
                    F.array("count").alias("results"),
                )
            )
        )
        sharded = results.withColumn("shard", shard_of("sensor"))
        flushed = service.group_by(sharded, "statistic", "shard").transformWithState(
            Accumulator(dataset.flush_after), FLUSHED, "Append", "None", name="accumulator"
        )
        return {"points": self._points(flushed)}

    def _points(self, flushed: DataFrame) -> DataFrame:
        if self._charts:
            folder = ChartFolder(self._charts, self._stream.dataset.charts_per_archive)
            flushed = through(flushed, FLUSHED, DrawCharts(folder))
        place = ("shard", "flush", "statistic", "id", "sensor", "field")
        return flushed.select(*place, F.posexplode("results").alias("step", "value"))

    def expected(self, events: Any) -> Mapping[str, pa.Table]:
        """The same points from a loop."""
        return {"points": expected_points(self._stream.dataset, events)}


def _results(df: DataFrame, statistic: str, results: Column) -> DataFrame:
    """Rows of one statistic, in the columns that all have."""
    shared = ("id", "sensor", "field", "at_ms")
    return df.select(F.lit(statistic).alias("statistic"), *shared, results.alias("results"))
