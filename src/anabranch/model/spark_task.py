"""The Spark task of a lane, as it travels with the lane's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SparkTask:
    """What user code may ask of the task whose rows it gets."""

    stage: int
    partition: int
    attempt: int
    """Number of the attempt, from 0."""
    attempt_id: int
    cpus: int
    cpu_amount: str | None = None
    """As a decimal number; None: this PySpark does not say."""
    resources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Addresses by name, such as those of GPUs."""
    properties: dict[str, str] = field(default_factory=dict)
    """Spark's local properties: the batch, the query, and settings as of the query's start."""


NO_TASK = SparkTask(0, 0, 0, 0, 0)
"""For rows that no Spark task has sent."""


def setting(task: SparkTask, defaults: Mapping[str, str], name: str) -> str | None:
    """A setting of the query's session as of its start; unset ones are as in `defaults`."""
    return task.properties.get(name, defaults.get(name))
