"""Models: classes by percentiles, a decision tree, a linear regression; training and prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.draws import Floats, Ints

CLASSES = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")

REGRESSION = "MLR"
TREE = "DTC"
KINDS = (REGRESSION, TREE)

_PERCENTILES = (50, 75, 100)
_LEAF_ROWS = 2
"""As C4.5 does, which the benchmark's tree is."""


def class_limits(targets: Floats) -> Floats:
    """Where GOOD, VERYGOOD and EXCELLENT begin in a batch of target values."""
    limits: Floats = np.percentile(targets, _PERCENTILES, method="weibull")
    return limits


def classes_of(targets: Floats) -> Ints:
    """The class of each target value of a batch: below the median is BAD, the maximum EXCELLENT."""
    return np.searchsorted(class_limits(targets), targets, side="right").astype(np.int64)


def train_regression(features: Floats) -> Any:
    """A multi-variate linear regression of the last column on the others."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(features[:, :-1], features[:, -1])


def train_tree(features: Floats) -> Any:
    """A decision tree that tells a row's class from all of its columns."""
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=_LEAF_ROWS, random_state=0)
    return tree.fit(features, classes_of(features[:, -1]))


@dataclass(frozen=True)
class Trained:
    """A model, its name and the figures that describe it."""

    name: str
    kind: str
    rows: int
    figures: dict[str, float]
    model: Any


def model_name(dataset: Dataset, kind: str, number: int) -> str:
    """The file of a model. Of two models of a kind, the one with the higher number is newer."""
    return f"{dataset.name}-{kind}-{number}.model"


def parse_name(name: str) -> tuple[str, str, int]:
    """Data set, kind and number of a model's name."""
    parts = name.removesuffix(".model").split("-")
    if len(parts) != 3 or parts[1] not in KINDS or not parts[2].isdigit():
        raise InvalidArgument(f"'{name}' is not a model's name. They look like city-MLR-0.model.")
    return parts[0], parts[1], int(parts[2])


def train(dataset: Dataset, number: int, features: Floats) -> list[Trained]:
    """Both models of some rows; TRAIN numbers them by the end of the range, in milliseconds."""
    regression, tree = train_regression(features), train_tree(features)
    weights = dict(zip(dataset.features[:-1], regression.coef_.tolist(), strict=True))
    labels = classes_of(features[:, -1])
    counts = np.bincount(labels, minlength=len(CLASSES)).tolist()
    shares = dict(zip(CLASSES, map(float, counts), strict=True))
    accuracy = float((tree.predict(features) == labels).mean())
    described: list[tuple[str, Any, dict[str, float]]] = [
        (REGRESSION, regression, {"intercept": float(regression.intercept_), **weights}),
        (TREE, tree, {"leaves": float(tree.get_n_leaves()), "accuracy": accuracy, **shares}),
    ]
    return [
        Trained(model_name(dataset, kind, number), kind, len(features), figures, model)
        for kind, model, figures in described
    ]
