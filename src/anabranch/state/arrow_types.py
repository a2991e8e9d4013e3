"""Arrow types of Spark types, the same on every supported PySpark."""

from __future__ import annotations

import inspect
from typing import Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

# PySpark 4.1 has no such parameter: there, instants are in UTC anyway.
_IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}


def arrow_type(spark_type: DataType) -> Any:
    """The Arrow type in which Spark sends and takes values; instants in UTC."""
    return to_arrow_type(spark_type, **_IN_UTC)  # type: ignore[arg-type]
