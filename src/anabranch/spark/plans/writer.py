"""A `DataStreamWriter` that is about to start: what it was told, and its plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.plans.catalyst import optional
from anabranch.spark.plans.checkpoint_state import SETTING

_TRIGGERS = ("ContinuousTrigger", "RealTimeTrigger")


class Writer:
    """Reads and changes the writer's fields in the JVM, which have no other access."""

    def __init__(self, writer: Any) -> None:
        self.df: DataFrame = writer._df
        self._jwrite = writer._jwrite

    @property
    def output_mode(self) -> Any:
        """Spark's object."""
        return self._field("outputMode").get(self._jwrite)

    @property
    def other_trigger(self) -> str | None:
        """A trigger under which only Spark's own operators run."""
        trigger = self._field("trigger").get(self._jwrite)
        name = str(trigger.getClass().getSimpleName()).rstrip("$")
        return name if name in _TRIGGERS else None

    @property
    def query_name(self) -> str | None:
        """What `queryName()` was given."""
        return self.option("queryName")

    @property
    def goes_to_function(self) -> bool:
        """Whether the sink is a function of the user."""
        return self._field("foreachBatchWriter").get(self._jwrite) is not None

    def checkpoint(self, spark: SparkSession) -> str | None:
        """Where the query's checkpoint is, if that is known before it starts."""
        given = self.option("checkpointLocation")
        root = spark.conf.get(SETTING, None)
        if given is not None or root is None or self.query_name is None:
            return given
        return f"{root}/{self.query_name}"

    def option(self, name: str) -> str | None:
        """An option as it was given."""
        found = optional(self._field("extraOptions").get(self._jwrite).get(name))
        return None if found is None else str(found)

    @contextmanager
    def reading(self, df: DataFrame) -> Iterator[None]:
        """What starts meanwhile reads another DataFrame."""
        field = self._field("ds")
        before = field.get(self._jwrite)
        field.set(self._jwrite, df._jdf)
        try:
            yield
        finally:
            field.set(self._jwrite, before)

    def _field(self, name: str) -> Any:
        field = self._jwrite.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field
