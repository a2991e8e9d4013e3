"""How many rows of a key user code gets at a time: Spark's settings, as of the query's start."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.model.spark_task import SparkTask, setting

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
LIMITS = (ROWS, BYTES)

UNLIMITED = (1 << 31) - 1

_UNITS: dict[str, int] = {unit: 1 << (10 * power) for power, unit in enumerate("bkmgtp")}


def rows_max(task: SparkTask, defaults: Mapping[str, str]) -> int:
    """Rows of a key at a time; Spark takes 0 and less for no limit."""
    given: int = int(setting(task, defaults, ROWS) or 0)
    return given if given > 0 else UNLIMITED


def rows_per_frame(
    task: SparkTask, defaults: Mapping[str, str], columns: Sequence[Any], num_rows: int
) -> int:
    """Rows of a DataFrame: whichever limit is reached first; as in Spark, by the average row."""
    rows = rows_max(task, defaults)
    limit = _bytes(setting(task, defaults, BYTES))
    size = sum(buffer.size for column in columns for buffer in column.buffers() if buffer)
    if limit == UNLIMITED or not size:
        return rows
    average: float = size / num_rows
    return min(rows, math.ceil(limit / average))


def _bytes(text: str | None) -> int:
    """A size as Spark writes it: 64m, 1kb, 100."""
    found = re.fullmatch(r"(\d+)([bkmgtp]?)b?", (text or "").strip().lower())
    if found is None:
        return UNLIMITED
    count, unit = found.groups()
    return int(count) * _UNITS[unit or "b"]
