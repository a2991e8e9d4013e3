"""A grouped stream, and the operators that it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from anabranch.agg import Window
from anabranch.errors import InvalidArgument
from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.sites import PlacedBy
from anabranch.spark.key_columns import check_key_columns
from anabranch.spark.plan import OperatorPlan

AttachPlan = Callable[[OperatorPlan, str, bool], DataFrame]


class GroupedStream:
    """A streaming DataFrame grouped by keys. `StateService.group_by` makes it."""

    def __init__(
        self,
        attach: AttachPlan,
        df: DataFrame,
        keys: Sequence[str | Column],
        window: Any,
        placed_by: PlacedBy | None = None,
    ) -> None:
        check_key_columns(df, keys)
        self._attach = attach
        self._df = df
        self._keys = keys
        self._window = window
        self._placed_by = placed_by
        if window is not None and not isinstance(window, Window):
            raise InvalidArgument(
                f"window must be made by agg.tumbling(), agg.sliding() or agg.session(), got "
                f"{window!r}."
            )

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
        own_stage: bool = False,
    ) -> DataFrame:
        """Do what PySpark's `GroupedData.transformWithState` does; keep state under `name`.

        If union() or coalesce() follows directly, `own_stage=True` puts a shuffle between them.
        """
        return self._transform(
            statefulProcessor,
            outputStructType,
            outputMode,
            timeMode,
            initialState,
            eventTimeColumnName,
            name,
            own_stage,
            use_pandas=False,
        )

    def transformWithStateInPandas(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: Any = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
        own_stage: bool = False,
    ) -> DataFrame:
        """Do what `GroupedData.transformWithStateInPandas` does; keep state under `name`."""
        return self._transform(
            statefulProcessor,
            outputStructType,
            outputMode,
            timeMode,
            initialState,
            eventTimeColumnName,
            name,
            own_stage,
            use_pandas=True,
        )

    def aggregate(
        self,
        *,
        name: str,
        outputMode: str = "update",
        own_stage: bool = False,
        **aggregates: Any,
    ) -> DataFrame:
        """Aggregate by columns (see `anabranch.agg`). Each keyword makes one output column."""
        from anabranch.spark.aggregate import plan_aggregate

        plan = plan_aggregate(
            self._df, self._keys, self._window, aggregates, outputMode, self._placed_by
        )
        return self._attach(plan, name, own_stage)

    def process(
        self,
        processor: ColumnarProcessor,
        outputStructType: StructType | str,
        *,
        name: str,
        event_time: str | None = None,
        own_stage: bool = False,
    ) -> DataFrame:
        """Run a columnar operator of your own (see `anabranch.ColumnarProcessor`).

        `event_time` names a column with a watermark. The operator then drops rows at or before the
        watermark.
        """
        from anabranch.spark.columnar import plan_columnar

        self._no_window("process")
        plan = plan_columnar(
            self._df,
            self._keys,
            processor,
            outputStructType,
            event_time=event_time,
            placed_by=self._placed_by,
        )
        return self._attach(plan, name, own_stage)

    def _transform(
        self,
        processor: StatefulProcessor,
        output: StructType | str,
        output_mode: str,
        time_mode: str,
        initial: Any,
        event_time_column: str,
        name: str | None,
        own_stage: bool,
        use_pandas: bool,
    ) -> DataFrame:
        from anabranch.spark.stateful import plan_transform_with_state

        self._no_window("transformWithState")
        plan = plan_transform_with_state(
            self._df,
            self._keys,
            processor,
            output,
            output_mode,
            time_mode,
            initial,
            event_time_column,
            use_pandas,
            self._placed_by,
        )
        return self._attach(plan, name or type(processor).__name__, own_stage)

    def _no_window(self, method: str) -> None:
        if self._window is not None:
            raise InvalidArgument(
                f"window= is for aggregate(). In {method}(), use timers or expiry, or group by "
                "F.window(...) as a key column."
            )
