"""`service.enable()`: PySpark's own methods on grouped streams, run by the service."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, GroupedData

from anabranch.spark.grouping import GroupedStream
from anabranch.spark.stateful import grouping_of

METHODS = ("transformWithState", "transformWithStateInPandas")


class MethodTakeover:
    """Replaces two methods of GroupedData while it is on; static DataFrames stay Spark's."""

    def __init__(
        self, group_by: Callable[..., GroupedStream], is_free: Callable[[str], bool]
    ) -> None:
        self._group_by = group_by
        self._is_free = is_free
        self._originals: dict[str, Any] = {}
        self._planning = threading.local()

    def start(self) -> None:
        """Take over."""
        for method in METHODS:
            self._originals[method] = getattr(GroupedData, method)
            setattr(GroupedData, method, self._replacement(method))

    def stop(self) -> None:
        """Give back."""
        for method, original in self._originals.items():
            setattr(GroupedData, method, original)
        self._originals = {}

    def _replacement(self, method: str) -> Callable[..., DataFrame]:
        original = self._originals[method]

        def transform(grouped: GroupedData, statefulProcessor: Any, *args: Any, **kw: Any) -> Any:
            # The planner lets Spark analyse the same call.
            inside = getattr(self._planning, "inside", False)
            if inside or not grouped._df.isStreaming:
                return original(grouped, statefulProcessor, *args, **kw)
            df, keys = grouping_of(grouped)
            name = self._name_for(type(statefulProcessor).__name__)
            stream = self._group_by(df, *keys)
            self._planning.inside = True
            try:
                # User code stays as it is, also where it goes on with union() or coalesce().
                return getattr(stream, method)(
                    statefulProcessor, *args, name=name, own_stage=True, **kw
                )
            finally:
                self._planning.inside = False

        transform.__name__ = method
        transform.__doc__ = original.__doc__
        return transform

    def _name_for(self, processor: str) -> str:
        """State is kept under the processor's class name; further uses are numbered in order.

        A name is free again when its query has ended: a cell that runs again finds its state.
        """
        numbered = (f"{processor}-{use}" for use in itertools.count(2))
        return next(name for name in itertools.chain([processor], numbered) if self._is_free(name))
