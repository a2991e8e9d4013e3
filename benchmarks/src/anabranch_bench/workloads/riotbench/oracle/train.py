"""TRAIN, range after range."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.models import CLASSES
from anabranch_bench.workloads.riotbench.oracle.messages import read

FIGURES = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("rows", pa.int64()),
        ("figure", pa.string()),
        ("value", pa.float64()),
    ]
)


def expected_figures(dataset: Dataset, events: Any, range_ms: int) -> pa.Table:
    """Figures of all models whose range the last watermark has reached."""
    ranges: dict[int, list[list[float]]] = defaultdict(list)
    latest = 0
    for message in read(dataset, events):
        number = (message.at_ms - dataset.start_ms) // range_ms
        end_ms = dataset.start_ms + (number + 1) * range_ms
        ranges[end_ms].append(message.features(dataset))
        latest = max(latest, message.at_ms)
    found: list[tuple[str, str, int, str, float]] = []
    for end_ms, rows in ranges.items():
        if end_ms <= latest:
            for kind, figures in (("MLR", _line(dataset, rows)), ("DTC", _tree(rows))):
                name = f"{dataset.name}-{kind}-{end_ms}.model"
                found += [(name, kind, len(rows), *figure) for figure in figures.items()]
    columns = list(zip(*found, strict=True)) or [()] * len(FIGURES)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, FIGURES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FIGURES)


def _line(dataset: Dataset, rows: list[list[float]]) -> dict[str, float]:
    inputs = np.array([[1.0, *row[:-1]] for row in rows])
    weights, *_ = np.linalg.lstsq(inputs, np.array([row[-1] for row in rows]), rcond=None)
    return dict(zip(("intercept", *dataset.features[:-1]), weights.tolist(), strict=True))


def label(value: float, sorted_targets: list[float]) -> str:
    """Class of a value in a batch: p-th percentile at position p(n+1)/100, linear between ranks."""

    def percentile(share: float) -> float:
        place = min(max(share * (len(sorted_targets) + 1), 1.0), float(len(sorted_targets)))
        below = int(place)
        if below == len(sorted_targets):
            return sorted_targets[-1]
        low, high = sorted_targets[below - 1], sorted_targets[below]
        return low + (place - below) * (high - low)

    if value < percentile(0.5):
        return "BAD"
    if value < percentile(0.75):
        return "GOOD"
    return "VERYGOOD" if value < sorted_targets[-1] else "EXCELLENT"


def _tree(rows: list[list[float]]) -> dict[str, float]:
    from sklearn.tree import DecisionTreeClassifier

    targets = sorted(row[-1] for row in rows)
    labels = [CLASSES.index(label(row[-1], targets)) for row in rows]
    tree = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=2, random_state=0)
    tree.fit(rows, labels)
    right = sum(int(a == b) for a, b in zip(tree.predict(rows), labels, strict=True))
    counts = Counter(labels)
    shares = {name: float(counts[number]) for number, name in enumerate(CLASSES)}
    return {"leaves": float(tree.get_n_leaves()), "accuracy": right / len(rows), **shares}
