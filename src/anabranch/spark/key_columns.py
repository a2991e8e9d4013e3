"""Key columns are looked for where they are named, not where the operator is defined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

UNRESOLVED = "UNRESOLVED_COLUMN"


def check_key_columns(df: DataFrame, keys: Sequence[str | Column]) -> None:
    """Raise what Spark raises for a column that is not there, with those that are."""
    if not keys or not isinstance(df, DataFrame):
        return
    try:
        df.select(*keys)
    except AnalysisException as found:
        error: Any = found
        condition = error.getCondition() or ""
        if not condition.startswith(UNRESOLVED):
            raise
        missing = (error.getMessageParameters() or {}).get("objectName", "?")
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in df.schema.fields)
        # Spark's own error, so that it has its class and its condition; in other words.
        error._desc = (
            f"[{condition}] There is no column {missing} to group by. Columns of the stream: "
            f"{columns}. Name one of them, or add the column before group_by."
        )
        raise error from None
