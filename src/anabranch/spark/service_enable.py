"""The part of the service that takes over PySpark's own stateful operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from anabranch.errors import InvalidArgument
from anabranch.processor.sites import Sites

if TYPE_CHECKING:
    from anabranch.spark.enable import Enabled


@dataclass(frozen=True)
class Enabling:
    """The parts of the service that this needs."""

    attach: Any
    """See `spark/enable.py`."""
    is_free: Callable[[str], bool]
    sites: Sites


class ServiceEnable(ABC):
    """enable, disable, explain."""

    _enabled: Enabled | None = None

    @abstractmethod
    def _enabling(self) -> Enabling:
        """Raises if the service was stopped."""

    def enable(
        self,
        names: Mapping[str, str] | None = None,
        *,
        placed_by: str | None = None,
        strict: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        """Run the stateful operators of PySpark's own API on this service from now on.

        `transformWithState` is taken over when it is called, all others when their query starts
        (docs/plans.md says which). What stays on Spark is told in one warning, or refused with
        `strict`. `only` restricts this to some operators, such as {"transformWithState"}.

        State is kept under class names and the names that `explain` shows, or under those that
        `names` gives for them. `placed_by` is as for `group_by`, for streams that are grouped by a
        column of this name.
        """
        from anabranch.spark.enable import Enabled

        parts = self._enabling()
        if self._enabled is None:
            by = parts.sites.by(placed_by)
            self._enabled = Enabled(parts.attach, parts.is_free, names, by, strict, only)
            self._enabled.start()

    def disable(self) -> None:
        """Undo `enable`."""
        if self._enabled is not None:
            self._enabled.stop()
            self._enabled = None

    def explain(
        self, df: DataFrame, output_mode: str = "append", query_name: str | None = None
    ) -> None:
        """Print which stateful operators of a query run here and which on Spark, and why."""
        if self._enabled is None:
            raise InvalidArgument("Call service.enable() first: explain shows what it does.")
        self._enabled.plans.explain(df, output_mode, query_name)
