"""The part of the service that continues queries which ran on Spark's own operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from anabranch.processor.contract import OperatorDefinition

if TYPE_CHECKING:
    from anabranch.spark.takeover import ImportReport


class ServiceTakeover:
    """import_checkpoint."""

    _spark: Any
    _store: Any
    _coordinator: Any
    _definitions: dict[str, OperatorDefinition]

    def _check_running(self) -> None:
        raise NotImplementedError

    def import_checkpoint(
        self,
        checkpoint: str,
        *,
        to: str,
        result: DataFrame,
        operators: Mapping[str, int] | None = None,
    ) -> ImportReport:
        """Continue a query that ran on Spark's own operators: its state, offsets and watermark.

        Stop the old query. Define the new one on this service, import, then start it with `to` as
        checkpointLocation. The import does not change the old checkpoint.

        Parameters
        ----------
        checkpoint : str
            checkpointLocation of the old query.
        to : str
            New folder for the new query's checkpoint.
        result : DataFrame
            What the new query writes. Its sources must be those of the old query.
        operators : mapping of str to int, optional
            For each operator of this service its operatorId in the old query (the source
            "state-metadata" lists them). Not needed if both have one.
        """
        from anabranch.spark.takeover import import_checkpoint

        self._check_running()
        report = import_checkpoint(
            self._spark,
            self._store,
            self._coordinator.store_lock,
            self._definitions,
            checkpoint,
            to,
            result,
            operators,
        )
        for name in report.rows:
            self._coordinator.announce(name)
        return report
