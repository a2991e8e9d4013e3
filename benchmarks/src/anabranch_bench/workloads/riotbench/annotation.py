"""Annotation and CSV-to-SenML: the last stateless steps of ETL."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.riotbench.datasets import Dataset
from anabranch_bench.workloads.riotbench.observations import replaced
from anabranch_bench.workloads.riotbench.senml import META_SEPARATOR, csv_to_senml
from anabranch_bench.workloads.riotbench.sensors import Sensors


@dataclass(frozen=True)
class Annotate:
    """Appends what is known about the sender; empty columns for a sender that is not known."""

    sensors: Sensors

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows with longer CSV."""
        at = pc.index_in(rows.column("sensor").combine_chunks(), self.sensors.ids)
        extra = [pc.fill_null(column.take(at), "") for column in self.sensors.annotations]
        row = rows.column("row").combine_chunks()
        return replaced(rows, "row", pc.binary_join_element_wise(row, *extra, META_SEPARATOR))


@dataclass(frozen=True)
class ToSenml:
    """Annotated CSV rows as messages."""

    dataset: Dataset

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Columns id and message."""
        names = (*self.dataset.columns, *self.dataset.annotations)
        texts = csv_to_senml(self.dataset, rows.column("row").combine_chunks(), names)
        return pa.table({"id": rows.column("id"), "message": texts})
