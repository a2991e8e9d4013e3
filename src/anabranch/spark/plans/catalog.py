"""Which stateful operators there are, and where each of them runs: the table of docs/plans.md."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.spark.plans.catalyst import Node, children, class_of, items

SERVICE = "service"
SPARK = "Spark"


@dataclass(frozen=True)
class CatalogKind:
    """A stateful operator of Spark."""

    name: str
    """In `enable(only=...)`, in what `explain` prints, and the first part of state names."""
    written: str
    """How users write it."""
    where: str
    why: str
    """Limits, or why it stays on Spark."""
    checkpoint_name: str
    """How its state is called in Spark's own checkpoints."""
    keeps_watermark: bool = True
    """Whether operators above it have the watermark that it has."""


TRANSFORM = CatalogKind(
    "transformWithState",
    "`groupBy().transformWithState()`, `transformWithStateInPandas()`",
    SERVICE,
    "taken over when the method is called",
    "transformWithStateInPySparkExec",
    keeps_watermark=False,
)
DUPLICATES = CatalogKind(
    "dropDuplicates",
    "`dropDuplicates()`, `distinct()`, with and without watermark",
    SERVICE,
    "",
    "dedupe",
)
WITHIN = CatalogKind(
    "dropDuplicatesWithinWatermark",
    "`dropDuplicatesWithinWatermark()`",
    SERVICE,
    "not if the event time is a window",
    "dedupeWithinWatermark",
)
AGGREGATE = CatalogKind(
    "aggregate",
    "`groupBy().agg()`, `count()`, windows; SQL `GROUP BY`, `DISTINCT`",
    SERVICE,
    "update and append mode; functions whose states Spark's expressions merge",
    "stateStoreSave",
)
SESSION = CatalogKind(
    "session",
    "`groupBy(session_window(...))`",
    SERVICE,
    "append mode; functions as above",
    "sessionWindowStateStoreSaveExec",
)
JOIN = CatalogKind(
    "join",
    "`join()` of two streams",
    SPARK,
    "not taken over yet",
    "symmetricHashJoin",
    keeps_watermark=False,
)
GROUPS = CatalogKind(
    "applyInPandasWithState",
    "`groupBy().applyInPandasWithState()`",
    SPARK,
    "not taken over yet; `transformWithState` is",
    "flatMapGroupsWithState",
    keeps_watermark=False,
)
LIMIT = CatalogKind(
    "limit",
    "`limit()` of a stream in append mode",
    SPARK,
    "one number is all of its state",
    "globalLimit",
)

KINDS = (TRANSFORM, DUPLICATES, WITHIN, AGGREGATE, SESSION, JOIN, GROUPS, LIMIT)

_BY_CLASS = {
    "Deduplicate": DUPLICATES,
    "DeduplicateWithinWatermark": WITHIN,
    "Distinct": AGGREGATE,
    "FlatMapGroupsInPandasWithState": GROUPS,
    "FlatMapGroupsWithState": GROUPS,
    "TransformWithState": TRANSFORM,
    "TransformWithStateInPySpark": TRANSFORM,
}
SESSION_MARK = "spark.sessionWindow"


def kind_of(node: Node, output_mode: str) -> CatalogKind | None:
    """What Spark keeps state for at a node; None: nothing."""
    if not node.isStreaming():
        return None
    name = class_of(node)
    if name == "Aggregate":
        return SESSION if _has_session(node) else AGGREGATE
    if name == "Join":
        return JOIN if all(side.isStreaming() for side in children(node)) else None
    if name == "GlobalLimit":
        return LIMIT if output_mode == "append" else None
    return _BY_CLASS.get(name)


def _has_session(aggregate: Node) -> bool:
    keys = items(aggregate.groupingExpressions())
    attributes = [key for key in keys if class_of(key) in ("AttributeReference", "Alias")]
    return any(key.metadata().contains(SESSION_MARK) for key in attributes)


def table() -> list[str]:
    """Lines of Markdown: what runs where."""
    lines = ["| operator | runs on | |", "|---|---|---|"]
    return [*lines, *(f"| {kind.written} | {kind.where} | {kind.why} |" for kind in KINDS)]
