"""`service.enable()`: PySpark's own methods on grouped streams, run by the service."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, GroupedData

from anabranch.errors import InvalidArgument, StateMismatch
from anabranch.processor.sites import PlacedBy
from anabranch.spark.grouping import GroupedStream
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.plans.catalog import TRANSFORM
from anabranch.spark.plans.rewriter import Choice
from anabranch.spark.plans.takeover import PlanTakeover
from anabranch.spark.stateful import grouping_of

METHODS = ("transformWithState", "transformWithStateInPandas")


class AttachOperator(Protocol):
    """The service's own way to put an operator on a stream."""

    def __call__(
        self, plan: OperatorPlan, name: str, own_stage: bool, family: str | None = None
    ) -> DataFrame:
        """The operator's result."""


class Enabled:
    """All that `enable()` switches on."""

    def __init__(
        self,
        attach: AttachOperator,
        is_free: Callable[[str], bool],
        names: Mapping[str, str] | None,
        placed_by: PlacedBy | None,
        strict: bool,
        only: Collection[str] | None,
    ) -> None:
        if isinstance(only, str):
            only = (only,)
        self._methods = MethodTakeover(attach, is_free, names, placed_by)
        self._takes_methods = only is None or TRANSFORM.name in only
        choice = Choice(dict(names or {}), only, placed_by)
        self.plans = PlanTakeover(self._methods.attach_own, choice, strict)

    def start(self) -> None:
        """Take over."""
        if self._takes_methods:
            self._methods.start()
        self.plans.start()

    def stop(self) -> None:
        """Give back."""
        self.plans.stop()
        self._methods.stop()


class MethodTakeover:
    """Replaces two methods of GroupedData while it is on; static DataFrames stay Spark's."""

    def __init__(
        self,
        attach: AttachOperator,
        is_free: Callable[[str], bool],
        names: Mapping[str, str] | None,
        placed_by: PlacedBy | None = None,
    ) -> None:
        self._attach = attach
        self._is_free = is_free
        self._names = dict(names or {})
        self._placed_by = placed_by
        given: Any = (*self._names, *self._names.values())
        for what in given:
            if not isinstance(what, str) or not what:
                raise InvalidArgument(
                    "names says under which name the state of a class is kept, as in "
                    f"names={{'NewCounter': 'Counter'}}; got {what!r}."
                )
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
            kind = type(statefulProcessor).__name__
            family = self._names.get(kind, kind)
            stream = GroupedStream(self.attach_own, df, keys, None, self._placed(df, keys))
            self._planning.inside = True
            try:
                # User code stays as it is, also where it goes on with union() or coalesce().
                return getattr(stream, method)(
                    statefulProcessor, *args, name=family, own_stage=True, **kw
                )
            finally:
                self._planning.inside = False

        transform.__name__ = method
        transform.__doc__ = original.__doc__
        return transform

    def _placed(self, df: DataFrame, keys: list[Column]) -> PlacedBy | None:
        """Streams that are not grouped by the site stay where hashes say."""
        by = self._placed_by
        return by if by is not None and by.column in df.select(*keys).columns else None

    def attach_own(self, plan: OperatorPlan, family: str, own_stage: bool) -> DataFrame:
        """State is kept under a class's or a kind's name; further uses are numbered in order.

        Which query has which is settled when it begins. So a name whose state is of another shape
        is left to the query that it belongs to.
        """
        for name in self._free_names(family):
            try:
                return self._attach(plan, name, own_stage, family)
            except StateMismatch:
                continue
        raise AssertionError

    def _free_names(self, family: str) -> Iterator[str]:
        numbered = (f"{family}-{use}" for use in itertools.count(2))
        return filter(self._is_free, itertools.chain([family], numbered))
