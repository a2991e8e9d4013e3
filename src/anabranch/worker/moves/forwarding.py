"""Rows that came to the old owner of a key group: passed on, the answer passed back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.protocol import worker as protocol
from anabranch.transport.client import Exchange
from anabranch.transport.messages.lanes import TransactionReports
from anabranch.transport.spool import Spool
from anabranch.worker.core import WorkerCore
from anabranch.worker.peers import Peers
from anabranch.worker.transactions.transaction import Forwarded, RunningTransaction, rows_of_groups

SLICE_ROWS = 1 << 16
HOPS_MAX = 8
"""Owners that rows are passed on to, one after the other, before the lane has to ask anew."""


class Forwarding:
    """Performs ForwardRows, each in a thread of its own beside the local part."""

    def __init__(self, core: WorkerCore, peers: Peers) -> None:
        self._core = core
        self._peers = peers

    def start(self, run: RunningTransaction, effect: protocol.ForwardRows) -> threading.Thread:
        """Pass rows on and tell the protocol how it went."""

        def work() -> None:
            self._core.dispatch(self._outcome(run, effect))

        thread = threading.Thread(target=work, name=f"anabranch-forward-{effect.tx}", daemon=True)
        thread.start()
        return thread

    def _outcome(self, run: RunningTransaction, effect: protocol.ForwardRows) -> protocol.Event:
        try:
            self._core.pass_point("forwarding")
            answer = self._forward(run, effect)
        except AnabranchError as error:
            return protocol.ForwardFailed(effect.tx, effect.target, error)
        except Exception as error:  # whatever it is, the lane waits for an answer
            failure = ServiceUnavailable(f"Rows could not be passed on: {error!r}")
            return protocol.ForwardFailed(effect.tx, effect.target, failure)
        run.forwarded.append(answer)
        return protocol.RowsForwarded(effect.tx, effect.target)

    def _forward(self, run: RunningTransaction, effect: protocol.ForwardRows) -> Forwarded:
        hops = run.header.hops + 1
        if hops > HOPS_MAX:
            raise ServiceUnavailable("Rows were passed on too often; the lane asks again.")
        with self._peers.using(effect.target) as peer:
            header = replace(run.header, groups=effect.groups, version=effect.version, hops=hops)
            exchange = peer.exchange(header)
            try:
                schema, sent = pa.schema([]), 0
                for batch in self._rows(run, effect.groups):
                    schema = batch.schema
                    exchange.write(batch)
                    sent += batch.num_rows
                exchange.done_writing(schema)
                self._core.count({"rows_forwarded": sent})
                return _answer(exchange, effect.groups, sent)
            finally:
                exchange.close()

    def _rows(self, run: RunningTransaction, groups: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        for chunk in run.rows.chunks():
            wanted = tuple(group for group in groups if group in chunk.groups)
            if wanted:
                rows = rows_of_groups(chunk.rows, wanted, run.rows.keyspace)
                yield from (b for b in rows.to_batches(SLICE_ROWS) if b.num_rows)


def _answer(exchange: Exchange, groups: tuple[int, ...], sent: int) -> Forwarded:
    report: TransactionReports | None = None
    rows = Spool()
    while (chunk := exchange.read()) is not None:
        batch, message = chunk
        report = message or report
        if batch is not None and batch.num_rows:
            rows.append(batch)
    answered = {g for tx in report.transactions for g in tx.report.groups} if report else set()
    if report is None or not answered.issuperset(groups):
        raise ServiceUnavailable("A worker's answer for rows that were passed on is incomplete.")
    return Forwarded(groups, sent, report.transactions, report.tallies, rows)
