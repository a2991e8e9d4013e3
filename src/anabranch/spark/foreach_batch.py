"""A `foreachBatch` that leaves out rows fails in that batch, as with Spark's own operators.

Spark checks its state stores after the user's function and knows nothing of ours. So the function
that a query on our operators is started with is followed by a look at what the lanes did.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from anabranch.errors import IncompleteBatch

ENABLED = "spark.sql.streaming.stateStore.commitValidation.enabled"
"""Spark's switch for its own check, and for this one."""

QUERY_ID = "sql.streaming.queryId"


class Epochs(Protocol):
    """The part of the coordinator that knows which batches are whole."""

    def has_committed(self, definition_id: int, query_id: str, epoch: int) -> bool:
        """Whether all lanes of a query's batch have ended."""


@dataclass(frozen=True)
class _Watched:
    """A definition, and who knows its batches."""

    operator: str
    definition_id: int
    epochs: Epochs


_checks: dict[str, _Watched] = {}
"""By the name of the lane function, which is in plans."""
_lock = threading.Lock()
_original: list[Any] = []
_expected: list[Any] = []
"""One for each service whose operators may come when a query starts."""

_FUNCTION = "_anabranch_function"
"""Of a writer: the function that the user gave."""


def watch(function: str, operator: str, definition_id: int, epochs: Epochs) -> None:
    """From now on: look after queries with a lane function of this name."""
    with _lock:
        _checks[function] = _Watched(operator, definition_id, epochs)
        _begin()


def forget(epochs: Epochs) -> None:
    """A service has stopped."""
    with _lock:
        for function in [name for name, known in _checks.items() if known.epochs is epochs]:
            del _checks[function]
        _end()


def prepare() -> None:
    """From now on, operators may be put into a query's plan when it starts."""
    with _lock:
        _expected.append(None)
        _begin()


def unprepare() -> None:
    """One service less does so."""
    with _lock:
        _expected.pop()
        _end()


def look_after(writer: Any, df: DataFrame) -> None:
    """A writer starts a query of another DataFrame: look after the operators in that one."""
    func = getattr(writer, _FUNCTION, None)
    if func is not None and _original:
        _original[0](writer, _checked(func, _watched(df)))


def _begin() -> None:
    if not _original:
        _original.append(DataStreamWriter.foreachBatch)
        DataStreamWriter.foreachBatch = _replacement(_original[0])  # type: ignore[method-assign]


def _end() -> None:
    if not _checks and not _expected and _original:
        DataStreamWriter.foreachBatch = _original.pop()  # type: ignore[method-assign]


def _replacement(original: Any) -> Any:
    @functools.wraps(original)
    def foreach_batch(writer: Any, func: Any) -> Any:
        found = _watched(writer._df)
        setattr(writer, _FUNCTION, func if callable(func) else None)
        return original(writer, _checked(func, found) if found and callable(func) else func)

    return foreach_batch


def _watched(df: DataFrame) -> list[_Watched]:
    return [_checks[name] for name in _functions(df) if name in _checks]


def _checked(
    func: Callable[[DataFrame, int], None], watched: list[_Watched]
) -> Callable[[DataFrame, int], None]:
    @functools.wraps(func)
    def whole(batch: DataFrame, batch_id: int) -> None:
        func(batch, batch_id)
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
        left = [
            each.operator
            for each in watched
            if not each.epochs.has_committed(each.definition_id, query_id, batch_id)
        ]
        if left and batch.sparkSession.conf.get(ENABLED, "true") != "false":
            raise IncompleteBatch(
                f"foreachBatch did not process all of batch {batch_id}, so its rows are not in the "
                f"state of operator '{left[0]}'. Nothing was committed. Use the whole DataFrame "
                "(write or count it, not only head(), take(), show() or limit()), let errors pass, "
                "and start the query again."
            )

    return whole


def _functions(df: DataFrame) -> set[str]:
    """Names of the functions that a plan maps Arrow batches with."""
    found = set()
    plans = [df._jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        if plan.nodeName() == "MapInArrow":
            found.add(plan.productElement(0).name())
        children = plan.children()
        plans += [children.apply(at) for at in range(children.size())]
    return found
