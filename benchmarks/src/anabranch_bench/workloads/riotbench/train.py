"""TRAIN: keeps recent rows in a table, and trains two models on each range when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from anabranch_bench.workloads.contract import Output, Workload
from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.modelstore import ModelStore, temporary_folder
from anabranch_bench.workloads.riotbench.mqtt import Address
from anabranch_bench.workloads.riotbench.observations import FEATURES, ParseFeatures, through
from anabranch_bench.workloads.riotbench.oracle.train import expected_figures
from anabranch_bench.workloads.riotbench.streams import Messages
from anabranch_bench.workloads.riotbench.training import Train, TrainingTable, train_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from anabranch.service import StateService

TOLERANCE = 1e-6


class Training(Workload):
    """Model training. What comes out are the figures of the models.

    The folder `models` gets the models; without one, a temporary one does. With a `broker` the
    names of new models are published; without one they become current at once.
    """

    def __init__(
        self,
        stream: Messages,
        models: str | None = None,
        broker: Address | None = None,
        range_seconds: float | None = None,
    ) -> None:
        self.name = f"riotbench train {stream.dataset.name}"
        self.description = "Train a decision tree and a linear regression on ranges of rows"
        self.events = stream
        self.outputs: Mapping[str, Output] = {"models": Output(tolerance=TOLERANCE)}
        self._stream = stream
        self._range_ms = round((range_seconds or stream.dataset.training_seconds) * 1000)
        self._models = models
        self._broker = broker

    @cached_property
    def store(self) -> ModelStore:
        """Where models are."""
        return ModelStore(self._models or temporary_folder())

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """The table is keyed state; training itself has none."""
        dataset = self._stream.dataset
        parsed = through(events, FEATURES, ParseFeatures(dataset))
        columns = [F.col("features")[i].alias(name) for i, name in enumerate(dataset.features)]
        rows = parsed.select(
            "id",
            F.timestamp_millis("at_ms").alias("at"),
            end_of_range(dataset, self._range_ms).alias("ends_at"),
            *columns,
        ).withWatermark("at", "0 seconds")
        numbers = ", ".join(f"{name} double" for name in dataset.features)
        ranges = service.group_by(rows, "id").process(
            TrainingTable(dataset), f"id long, ends_at timestamp, {numbers}", name="table"
        )
        return {"models": train_ranges(ranges, Train(dataset, self.store, self._broker))}

    def expected(self, events: Any) -> Mapping[str, pa.Table]:
        """The same figures from NumPy's least squares and a tree over each range's rows."""
        return {"models": expected_figures(self._stream.dataset, events, self._range_ms)}


def end_of_range(dataset: Dataset, range_ms: int) -> Column:
    """Ranges follow each other from the start of the stream on."""
    since = F.col("at_ms") - F.lit(dataset.start_ms)
    number = F.floor(since / F.lit(range_ms)).cast("long") + 1
    return F.timestamp_millis(F.lit(dataset.start_ms) + number * F.lit(range_ms))
