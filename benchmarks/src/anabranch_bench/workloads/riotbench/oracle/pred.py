"""PRED, one message after the other."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.models import CLASSES
from anabranch_bench.workloads.riotbench.modelstore import Pins
from anabranch_bench.workloads.riotbench.oracle.messages import read

ERRORS = pa.schema(
    [
        ("id", pa.int64()),
        ("sensor", pa.string()),
        ("value", pa.float64()),
        ("predicted", pa.float64()),
        ("class", pa.string()),
        ("regression", pa.string()),
        ("tree", pa.string()),
        ("error", pa.float64()),
    ]
)


def expected_errors(dataset: Dataset, events: Any, pins: Pins) -> pa.Table:
    """Class, prediction and error of every message."""
    blocks: dict[str, list[float]] = defaultdict(list)
    averages: dict[str, float] = {}
    found = []
    for message in read(dataset, events):
        names = pins.models_of(message.id // pins.block)
        row = message.features(dataset)
        predicted = _on_line(pins.store.load(names["MLR"]), row[:-1])
        kind = CLASSES[_leaf(pins.store.load(names["DTC"]), row)]
        block = blocks[message.sensor]
        block.append(row[-1])
        if len(block) == dataset.average_window:
            averages[message.sensor] = sum(block) / len(block)
            block.clear()
        average = averages.get(message.sensor)
        error = (row[-1] - predicted) / average if average else None
        models = (names["MLR"], names["DTC"])
        found.append((message.id, message.sensor, row[-1], predicted, kind, *models, error))
    columns = list(zip(*found, strict=True)) or [()] * len(ERRORS)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ERRORS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ERRORS)


def _on_line(model: Any, inputs: list[float]) -> float:
    total = float(model.intercept_)
    for weight, value in zip(model.coef_.tolist(), inputs, strict=True):
        total += weight * value
    return total


def _leaf(model: Any, row: list[float]) -> int:
    """Walk down the tree; its inputs are 32-bit numbers."""
    nodes = model.tree_
    at = 0
    while nodes.children_left[at] >= 0:
        is_left = np.float32(row[nodes.feature[at]]) <= nodes.threshold[at]
        at = nodes.children_left[at] if is_left else nodes.children_right[at]
    return int(model.classes_[np.argmax(nodes.value[at][0])])
