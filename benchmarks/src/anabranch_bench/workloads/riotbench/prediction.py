"""Prediction: the class and the target of every message, by the models of its block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.models import CLASSES, REGRESSION, TREE
from anabranch_bench.workloads.riotbench.modelstore import Pins
from anabranch_bench.workloads.riotbench.mqtt import Address, publish
from anabranch_bench.workloads.riotbench.observations import as_matrix

PREDICTED = (
    "id long, sensor string, value double, predicted double, class string, "
    "regression string, tree string"
)
"""Actual and predicted target, class, and the names of the models."""

CLASS_TOPIC, ERROR_TOPIC = "classes", "errors"


@dataclass(frozen=True)
class Predict:
    """Classify and predict (1:1)."""

    dataset: Dataset
    pins: Pins

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Columns of PREDICTED."""
        ids = rows.column("id").to_numpy()
        features = as_matrix(rows.column("features"), len(self.dataset.features))
        predicted = np.empty(len(ids))
        classes = np.empty(len(ids), np.int64)
        used: dict[str, Any] = {kind: np.empty(len(ids), object) for kind in (REGRESSION, TREE)}
        blocks = ids // self.pins.block
        for block in np.unique(blocks).tolist():
            at = np.flatnonzero(blocks == block)
            names = self.pins.models_of(block)
            regression, tree = (self.pins.store.load(names[kind]) for kind in (REGRESSION, TREE))
            predicted[at] = regression.predict(features[at, :-1])
            classes[at] = tree.predict(features[at])
            for kind, name in names.items():
                used[kind][at] = name
        return pa.table(
            {
                "id": rows.column("id"),
                "sensor": rows.column("sensor"),
                "value": features[:, -1],
                "predicted": predicted,
                "class": pa.array(CLASSES).take(pa.array(classes)),
                "regression": pa.array(used[REGRESSION], pa.string()),
                "tree": pa.array(used[TREE], pa.string()),
            }
        )


@dataclass(frozen=True)
class PublishResults:
    """A task that publishes a class message and an error message for each row."""

    broker: Address

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows."""
        ids, classes, errors = (rows.column(n).to_pylist() for n in ("id", "class", "error"))
        classified = [f"{i},{c}" for i, c in zip(ids, classes, strict=True)]
        estimated = [f"{i},{e}" for i, e in zip(ids, errors, strict=True) if e is not None]
        publish(self.broker, CLASS_TOPIC, classified)
        publish(self.broker, ERROR_TOPIC, estimated)
        return rows
