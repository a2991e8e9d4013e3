"""Training: a table of recent rows as keyed state, range by range, and what is learned from one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.models import Trained, train
from anabranch_bench.workloads.riotbench.modelstore import ModelStore
from anabranch_bench.workloads.riotbench.mqtt import Address, publish

FIGURES = "name string, kind string, rows long, figure string, value double"
"""What is told about a model: one row for each of its figures."""

MODEL_TOPIC = "models"


class TrainingTable(ColumnarProcessor):
    """Key: message. State: its features and the end of its range (`ends`, a timestamp).

    The watermark is the timer: when it reaches the end of a range, all rows of the range come out
    in one batch, and leave the table.
    """

    expiry = "ends"

    def __init__(self, dataset: Dataset) -> None:
        self._names = dataset.features

    @property
    def state_schema(self) -> pa.Schema:
        """A column for each feature."""
        ends = pa.field("ends", pa.timestamp("us", "UTC"))
        return pa.schema([ends, *(pa.field(f"{name}_", pa.float64()) for name in self._names)])

    def process(self, batch: KeyedBatch) -> Update:
        """Insert rows."""
        row = pa.array(batch.segments.order[batch.segments.starts])
        state = {f"{name}_": batch.rows.column(name).take(row) for name in self._names}
        return Update(state=pa.table({"ends": batch.rows.column("ends_at").take(row), **state}))

    def expire(self, batch: KeyedBatch) -> Update:
        """The rows of ranges that are over."""
        columns = {name: batch.state.column(f"{name}_") for name in self._names}
        output = pa.table(
            {"id": batch.keys.column("id"), "ends_at": batch.state.column("ends"), **columns}
        )
        return Update(drop=np.ones(batch.num_keys, bool), output=output)


@dataclass(frozen=True)
class Train:
    """Trains both models of every range, uploads them and announces their names.

    A partition has all rows of a range or none.
    """

    dataset: Dataset
    store: ModelStore
    broker: Address | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Rows of ranges in, figures of models out."""
        pieces = [batch for batch in batches if batch.num_rows]
        if not pieces:
            return
        rows = pa.Table.from_batches(pieces).sort_by("id")
        ends = rows.column("ends_at").cast(pa.int64()).to_numpy() // 1000
        features = np.column_stack([rows.column(n).to_numpy() for n in self.dataset.features])
        for end_ms in np.unique(ends).tolist():
            for trained in train(self.dataset, end_ms, features[ends == end_ms]):
                self.store.upload(trained)
                announce(self.store, self.broker, trained)
                yield _figures(trained)


def announce(store: ModelStore, broker: Address | None, trained: Trained) -> None:
    """Of a model in the store, tell whoever predicts: by MQTT, or by making it current."""
    if broker:
        publish(broker, MODEL_TOPIC, [trained.name])
    else:
        store.activate(trained.name)


def _figures(trained: Trained) -> Any:
    count = len(trained.figures)
    return pa.record_batch(
        {
            "name": [trained.name] * count,
            "kind": [trained.kind] * count,
            "rows": pa.array([trained.rows] * count, pa.int64()),
            "figure": list(trained.figures),
            "value": list(trained.figures.values()),
        }
    )


def train_ranges(ranges: DataFrame, task: Train) -> DataFrame:
    """Figures of the models of all ranges that a batch has."""
    return ranges.repartition("ends_at").mapInArrow(task, FIGURES)
