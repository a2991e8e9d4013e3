"""Our handle and state classes look like PySpark's: names, parameters, defaults, inheritance."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pyspark.sql import GroupedData
from pyspark.sql.streaming import stateful_processor as original

from anabranch.processor.rows import expiring, handle, variables
from anabranch.spark.stateful import plan_transform_with_state

PAIRS = [
    (original.ValueState, variables.RowValueState),
    (original.ListState, variables.RowListState),
    (original.MapState, variables.RowMapState),
    (original.ValueState, expiring.ExpiringValueState),
    (original.ListState, expiring.ExpiringListState),
    (original.MapState, expiring.ExpiringMapState),
    (original.StatefulProcessorHandle, handle.ProcessorHandle),
    (original.StatefulProcessorHandle, handle.RecordingHandle),
]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_methods(theirs: type, ours: type) -> None:
    assert issubclass(ours, theirs)
    names = [name for name in vars(theirs) if not name.startswith("_")]
    assert names
    for name in names:
        method = getattr(ours, name)
        assert method is not getattr(theirs, name), f"{name} would talk to a socket"
        assert parameters(method) == parameters(getattr(theirs, name)), name


@pytest.mark.parametrize("name", ["transformWithState", "transformWithStateInPandas"])
def test_planner(name: str) -> None:
    theirs = parameters(getattr(GroupedData, name))[1:]
    ours = parameters(plan_transform_with_state)
    assert ours[0][0] == "grouped_df"
    assert ours[2 : 2 + len(theirs)] == theirs
