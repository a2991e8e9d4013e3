"""Batches for a processor that tells how many rows come at a time."""

from __future__ import annotations

from typing import Any

from tests.unit.processor.rows.processors import Sizing, SizingFrames
from tests.unit.processor.rows.support import Service, define

from anabranch.model.spark_task import SparkTask

KV = "k long, v long"
SIZES = "k long, n long"


def task(**settings: str) -> SparkTask:
    return SparkTask(0, 0, 0, 0, 1, properties=settings)


def service(processor: Sizing, first: str | None = None) -> Service:
    frames = isinstance(processor, SizingFrames)
    definition = define(processor, KV, ["k"], SIZES, use_pandas=frames, initial_schema=first)
    return Service(definition).with_types(KV, first)


def sizes(worker: Service, initial: Any = (), **settings: str) -> dict[int, list[int]]:
    worker.task = task(**settings)
    found: dict[int, list[int]] = {}
    rows = [(key, 0) for key in (1, 2, 3) for _ in range(4 * key)]
    for row in worker.batch(rows, initial=initial):
        found.setdefault(row["k"], []).append(row["n"])
    return found
