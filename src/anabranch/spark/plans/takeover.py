"""`service.enable()` on whole plans: a query that starts has its stateful operators replaced."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from anabranch.errors import InvalidArgument
from anabranch.spark.foreach_batch import look_after, prepare, unprepare
from anabranch.spark.plans.catalog import KINDS
from anabranch.spark.plans.catalyst import Catalyst, Node
from anabranch.spark.plans.checkpoint_state import native_kinds
from anabranch.spark.plans.rewriter import (
    Attach,
    Choice,
    Found,
    PlanRewriter,
    QueryWords,
    is_watermarked,
)
from anabranch.spark.plans.writer import Writer
from anabranch.spark.ticks import has_ticks, ticks

_log = logging.getLogger("anabranch.service")

METHODS = ("start", "toTable")

_ALLOW_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"

_starting = threading.local()
"""A query starts on this thread: the inner one of two services leaves it alone."""


class PlanTakeover:
    """Replaces the methods that start a query while it is on."""

    def __init__(self, attach: Attach, choice: Choice, strict: bool) -> None:
        self._attach = attach
        self._choice = choice
        self._strict = strict
        self._originals: dict[str, Any] = {}
        known = [kind.name for kind in KINDS]
        for name in choice.only or ():
            if name not in known:
                raise InvalidArgument(
                    f"only={name!r} is no operator. Use some of {', '.join(known)}."
                )

    def start(self) -> None:
        """Take over."""
        prepare()
        for method in METHODS:
            self._originals[method] = getattr(DataStreamWriter, method)
            setattr(DataStreamWriter, method, self._replacement(method))

    def stop(self) -> None:
        """Give back."""
        for method, original in self._originals.items():
            setattr(DataStreamWriter, method, original)
        if self._originals:
            unprepare()
        self._originals = {}

    def explain(self, df: DataFrame, output_mode: str, query_name: str | None) -> None:
        """Print where the stateful operators of a query would run."""
        words = QueryWords(output_mode.lower(), query_name)
        lines = [_line(each) for each in self._survey(df, words)]
        sys.stdout.write("\n".join(lines or ["No operator of this query has state."]) + "\n")

    def _replacement(self, method: str) -> Any:
        original = self._originals[method]

        @functools.wraps(original)
        def start(writer: Any, *args: Any, **options: Any) -> Any:
            if getattr(_starting, "inside", False):
                return original(writer, *args, **options)
            _starting.inside = True
            try:
                return self._start(original, writer, args, options)
            finally:
                _starting.inside = False

        return start

    def _start(
        self, original: Any, writer: Any, args: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        # What the call itself says counts as if it had been said before.
        said = inspect.signature(original).bind(writer, *args, **options).arguments
        if said.get("outputMode") is not None:
            writer.outputMode(said["outputMode"])
        if said.get("queryName") is not None:
            writer.queryName(said["queryName"])
        for name, value in said.get("options", {}).items():
            writer.option(name, value)
        about = Writer(writer)
        rewritten = self._rewritten(about)
        look_after(writer, about.df if rewritten is None else rewritten)
        if rewritten is None:
            return original(writer, *args, **options)
        with about.reading(rewritten):
            return original(writer, *args, **options)

    def _rewritten(self, writer: Writer) -> DataFrame | None:
        """What the query reads instead; None: nothing of it is taken over here."""
        df = writer.df
        if not df.isStreaming:
            return None
        catalyst = Catalyst(df.sparkSession)
        mode = writer.output_mode
        if not _is_supported(catalyst, df, mode):
            return None  # Spark says so, in its own words
        words = QueryWords(
            str(mode.toString()).lower(),
            writer.query_name,
            self._native(writer, df),
            writer.goes_to_function,
        )
        try:
            found = self._survey(df, words)
        except (Py4JError, TypeError) as error:  # other internals than those of 4.1 to 4.3
            self._complain(f"the plan cannot be read in this release of Spark ({error})")
            return None
        self._tell(found)
        if not any(each.is_ours and each.family for each in found):
            return None
        plan = catalyst.prepared(catalyst.plan_of(df))
        new = PlanRewriter(catalyst, self._choice, words, self._attach).rewrite(plan)
        return catalyst.frame(_ticking(catalyst, plan, new))

    def _native(self, writer: Writer, df: DataFrame) -> dict[str, str]:
        """Kinds that stay on Spark whatever the plan, and why."""
        spark = df.sparkSession
        if writer.other_trigger is not None:
            return dict.fromkeys((k.name for k in KINDS), f"of the {writer.other_trigger}")
        if spark.conf.get(_ALLOW_MULTIPLE, "true") == "false":
            return dict.fromkeys((k.name for k in KINDS), f"{_ALLOW_MULTIPLE} is false")
        checkpoint = writer.checkpoint(spark)
        return {} if checkpoint is None else dict(native_kinds(spark, checkpoint))

    def _survey(self, df: DataFrame, words: QueryWords) -> list[Found]:
        catalyst = Catalyst(df.sparkSession)
        rewriter = PlanRewriter(catalyst, self._choice, words)
        rewriter.rewrite(catalyst.prepared(catalyst.plan_of(df)))
        return rewriter.found

    def _tell(self, found: Sequence[Found]) -> None:
        left = [each for each in found if not each.is_ours]
        if not left:
            return
        self._complain("; ".join(f"{each.kind.name} ({each.reason})" for each in left))

    def _complain(self, shown: str) -> None:
        """Of what stays on Spark."""
        if self._strict:
            raise InvalidArgument(
                f"enable(strict=True): operators of this query would stay on Spark: {shown}. "
                "Change the query, or enable without strict."
            )
        _log.warning(
            "Operators of this query stay on Spark: %s. service.explain(df) shows all of them.",
            shown,
        )


def _is_supported(catalyst: Catalyst, df: DataFrame, output_mode: Any) -> bool:
    try:
        catalyst.check_streaming(catalyst.plan_of(df), output_mode)
    except AnalysisException:
        return False
    return True


def _ticking(catalyst: Catalyst, old: Node, new: Node) -> Node:
    """One source of ticks for the query, the last of its sources, if it can need one."""
    if not is_watermarked(old) or has_ticks(new):
        return new
    tick = ticks(catalyst.spark, catalyst.schema_json(old), "eventtime")
    return catalyst.union(new, catalyst.plan_of(tick))


def _line(found: Found) -> str:
    if found.is_ours:
        name = f", state name '{found.family}'" if found.family else ""
        return f"{found.kind.name}: on the service{name}\n    {found.text}"
    return f"{found.kind.name}: on Spark, because {found.reason}\n    {found.text}"
