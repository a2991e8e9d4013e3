"""Passes an exchange on between a lane and a worker that cannot reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from anabranch.errors import ServiceUnavailable
from anabranch.transport.client import Peer
from anabranch.transport.messages.lanes import TransactionHeader, TransactionReports
from anabranch.transport.spool import Spool


class RelayedAnswer:
    """What the worker has answered."""

    def __init__(self, report: TransactionReports, schema: pa.Schema, outputs: Spool) -> None:
        self.report = report
        self.schema = schema
        self._outputs = outputs

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The outputs."""
        return iter(self._outputs)


def pass_on(header: TransactionHeader, rows: Iterator[pa.RecordBatch], peer: Peer) -> RelayedAnswer:
    """Rows there, outputs back; whatever fails on the way is an error of the exchange."""
    schema = pa.schema([])
    with closing(peer.exchange(header)) as exchange:
        for batch in rows:
            schema = batch.schema
            exchange.write(batch)
        exchange.done_writing(schema)
        outputs, report, schema = Spool(), None, pa.schema([])
        while (chunk := exchange.read()) is not None:
            batch, told = chunk
            report = told or report
            if batch is not None and batch.num_rows:
                schema = batch.schema
                outputs.append(batch)
    if report is None:
        raise ServiceUnavailable(f"{peer.name} ended its answer without a report.")
    return RelayedAnswer(report, schema, outputs)
