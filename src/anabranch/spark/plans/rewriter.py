"""Walks a plan and replaces its stateful operators; what is left to Spark has a reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from anabranch.errors import InvalidArgument
from anabranch.processor.sites import PlacedBy
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.plans.aggregates import plan_aggregate
from anabranch.spark.plans.catalog import (
    AGGREGATE,
    DUPLICATES,
    SESSION,
    TRANSFORM,
    WITHIN,
    CatalogKind,
    kind_of,
)
from anabranch.spark.plans.catalyst import Catalyst, Node, children, class_of
from anabranch.spark.plans.duplicates import plan_duplicates
from anabranch.spark.plans.operator import NodeInput, Replacement, StaysNative

Attach = Callable[[OperatorPlan, str, bool], DataFrame]
"""Puts an operator on the service, under a name that is made from a family's."""

Planner = Callable[[NodeInput, PlacedBy | None], Replacement]

PLANNERS: Mapping[str, Planner] = {
    DUPLICATES.name: plan_duplicates,
    WITHIN.name: plan_duplicates,
    AGGREGATE.name: plan_aggregate,
    SESSION.name: plan_aggregate,
}

LANES = "run_lane_"
"""How functions of our lanes begin (`spark/attach.py`)."""

_SAME_TASKS = frozenset(
    {"Project", "Filter", "EventTimeWatermark", "Generate", "Expand", "SubqueryAlias", "View"}
)
"""Nodes whose tasks are those of what is below them."""


@dataclass(frozen=True)
class Found:
    """A stateful operator of a query, and where it runs."""

    kind: CatalogKind
    text: str
    """The node, in Spark's words."""
    is_ours: bool
    reason: str
    """Why it stays on Spark; empty if it does not."""
    family: str
    """The name that its state's name is made from."""


@dataclass(frozen=True)
class QueryWords:
    """What a query's start says besides its plan."""

    output_mode: str
    query_name: str | None = None
    native: Mapping[str, str] = field(default_factory=dict)
    """Kinds that stay on Spark in this query, and why."""
    goes_to_function: bool = True
    """Whether user code may still renumber the tasks of the result."""


@dataclass(frozen=True)
class Choice:
    """What `enable()` was told."""

    names: Mapping[str, str] = field(default_factory=dict)
    only: Collection[str] | None = None
    placed_by: PlacedBy | None = None

    def family(self, kind: CatalogKind, words: QueryWords) -> str:
        """Under which name state is kept: that of the query and the kind, unless `names` has it."""
        own = kind.name if words.query_name is None else f"{words.query_name}.{kind.name}"
        return self.names.get(own, own)


class PlanRewriter:
    """One walk over one plan, from its sources up."""

    def __init__(
        self, catalyst: Catalyst, choice: Choice, words: QueryWords, attach: Attach | None = None
    ) -> None:
        """Without `attach`, everything is planned and nothing is changed."""
        self._catalyst = catalyst
        self._choice = choice
        self._words = words
        self._attach = attach
        self.found: list[Found] = []

    def rewrite(self, plan: Node) -> Node:
        """The plan with the service's operators in it."""
        return self._visit(plan, not self._words.goes_to_function)[0]

    def _visit(self, node: Node, keeps_lanes: bool) -> tuple[Node, CatalogKind | None]:
        """A subtree, and an operator left to Spark in it that changes the watermark."""
        kind = kind_of(node, self._words.output_mode)
        # A stateful operator above shuffles: what is below it has its lanes for itself.
        below = kind is not None or (keeps_lanes and class_of(node) in _SAME_TASKS)
        before = children(node)
        visited = [self._visit(child, below) for child in before]
        changing = next((each for _, each in visited if each is not None), None)
        after = [child for child, _ in visited]
        if any(old is not new for old, new in zip(before, after, strict=True)):
            node = self._catalyst.with_children(node, after)
        if kind is None:
            self._note_lanes(node)
            return node, changing
        text = str(node.simpleString(8))
        family = self._choice.family(kind, self._words)
        try:
            made = self._plan(kind, node, changing)
        except StaysNative as reason:
            self.found.append(Found(kind, text, False, str(reason), family))
            return node, changing if kind.keeps_watermark else kind
        self.found.append(Found(kind, text, True, "", family))
        if self._attach is None:
            return node, changing
        result = self._attach(made.plan, family, not keeps_lanes)
        return made.restore(self._catalyst.plan_of(result)), changing

    def _plan(self, kind: CatalogKind, node: Node, changing: CatalogKind | None) -> Replacement:
        planner = PLANNERS.get(kind.name)
        if kind is TRANSFORM:
            raise StaysNative("it was defined before enable()")
        if planner is None:
            raise StaysNative(kind.why)
        if self._choice.only is not None and kind.name not in self._choice.only:
            raise StaysNative("enable(only=...) leaves it out")
        if kind.name in self._words.native:
            raise StaysNative(self._words.native[kind.name])
        if changing is not None:
            raise StaysNative(
                f"below it, a {changing.name} stays on Spark and gives it another watermark than "
                "the query's"
            )
        try:
            (child,) = children(node)
            return planner(
                NodeInput(self._catalyst, node, child, self._words.output_mode),
                self._choice.placed_by,
            )
        except (InvalidArgument, AnalysisException) as error:
            raise StaysNative(str(error)) from error

    def _note_lanes(self, node: Node) -> None:
        """An operator that was put on the service when its method was called."""
        if class_of(node) == "MapInArrow":
            name = str(node.productElement(0).name())
            if name.startswith(LANES):
                self.found.append(Found(TRANSFORM, name, True, "", ""))


def is_watermarked(plan: Node) -> bool:
    """Whether anything in a plan has a watermark, so that batches may run without rows."""
    return class_of(plan) == "EventTimeWatermark" or any(map(is_watermarked, children(plan)))
