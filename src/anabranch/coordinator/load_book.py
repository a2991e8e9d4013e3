"""What the autoscaler is told: batches of all queries, and the workers that they meet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from anabranch.autoscale.signals import (
    FleetSignals,
    GroupRows,
    HostUse,
    QueryLoad,
    SignalBatch,
    Signals,
)
from anabranch.coordinator import steady_clock
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.coordinator.query_clock import QueryWatch
from anabranch.coordinator.useful_time import BatchLoad
from anabranch.model.ids import HostId
from anabranch.model.query_reports import BatchReport, QueryReports
from anabranch.protocol.coordinator import CoordinatorMachine, WorkerPhase

RECENT_SECONDS = 900.0
"""A query without a batch for so long has no say."""


class LoadBook:
    """Puts together what operators, queries and moves know."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        lock: Any,
        operators: Mapping[str, OperatorRecord],
        moves: MoveRunner,
        watch: QueryWatch,
        worker_state_bytes_max: int | None = None,
    ) -> None:
        self._machine, self._lock, self._operators = machine, lock, operators
        self._moves, self._watch = moves, watch
        self._limit = worker_state_bytes_max
        self._restarts = 0
        self._disturbed = 0.0
        """When a worker was replaced last, as far as anybody has seen."""

    def signals(self, released: frozenset[HostId]) -> Signals:
        """Everything now."""
        now = steady_clock.now()
        fleet = self._fleet(now, released)
        return Signals(now, tuple(self._queries(now)), fleet)

    def with_groups(self, signals: Signals) -> Signals:
        """The same with rows of key groups, which all workers are asked for."""
        groups = tuple(
            GroupRows(each["group"], each["owner"], float(each["rows"]))
            for each in self._moves.key_groups()
        )
        return replace(signals, fleet=replace(signals.fleet, groups=groups))

    # -- workers --

    def _fleet(self, now: float, released: frozenset[HostId]) -> FleetSignals:
        with self._lock:
            workers = dict(self._machine.workers)
        missing = {w: v.phase.value for w, v in workers.items() if v.phase is not WorkerPhase.UP}
        restarts = sum(view.restarts for view in workers.values())
        if restarts > self._restarts or missing:
            self._disturbed = now
        self._restarts = restarts
        why = ", ".join(f"{worker} is {phase}" for worker, phase in missing.items())
        size = sum(o.useful.batches[-1].state_bytes for o in self._known())
        return FleetSignals(
            len(self._moves.wanted().workers),
            self._moves.is_moving,
            f"{why}." if why else "",
            size,
            self._limit,
            self._hosts(),
            released,
        )

    def _hosts(self) -> dict[HostId, HostUse]:
        now = self._moves.hosts()
        if len(now.hosts) < 2 and all(view.capacity is None for view in now.hosts.values()):
            return {}
        runs = list(now.at.values())
        return {
            host: HostUse(runs.count(host), view.capacity, host in now.drained)
            for host, view in now.hosts.items()
        }

    # -- queries --

    def _known(self) -> list[OperatorRecord]:
        with self._lock:
            operators = list(self._operators.values())
        return [operator for operator in operators if operator.useful.batches]

    def _queries(self, now: float) -> list[QueryLoad]:
        with self._lock:
            query_of = {name: view.query_id for name, view in self._machine.operators.items()}
        grouped: dict[str, list[OperatorRecord]] = {}
        for operator in self._known():
            last = operator.useful.batches[-1]
            query = query_of.get(operator.name)
            if query is not None and now - last.started - last.seconds < RECENT_SECONDS:
                grouped.setdefault(query, []).append(operator)
        return [self._query(query, operators) for query, operators in grouped.items()]

    def _query(self, query_id: str, operators: list[OperatorRecord]) -> QueryLoad:
        told = self._watch.reports(operators[0].name, query_id)
        name = " + ".join(operator.name for operator in operators)
        loads = [list(operator.useful.batches) for operator in operators]
        batches = joined(loads, told, self._is_calm)
        is_in_batch = any(o.timings and o.timings[-1].seconds is None for o in operators)
        return QueryLoad(name, tuple(batches), told.interval, is_in_batch)

    def _is_calm(self, started: float, ended: float) -> bool:
        """Whether nothing but the batch went on between two times."""
        if started < self._disturbed:
            return False
        for move in self._moves.recent():
            until = ended + 1 if not move.is_done else move.started + move.report().seconds
            if move.started <= ended and until >= started:
                return False
        return True


def joined(
    loads: list[list[BatchLoad]], told: QueryReports, is_calm: Any = lambda *_: True
) -> list[SignalBatch]:
    """Batches of a query: all its operators' parts, with the query's own times if it tells them.

    The newest batch is left out until the query has told of it.
    """
    reports = {report.epoch: report for report in told.batches}
    parts: dict[int, list[BatchLoad]] = {}
    for each in loads:
        for load in each:
            parts.setdefault(load.epoch, []).append(load)
    whole = {epoch: some for epoch, some in parts.items() if len(some) == len(loads)}
    if known := reports.keys() & whole.keys():
        whole = {epoch: whole[epoch] for epoch in known}
    ratio = _rows_per_source_row(whole, reports)
    batches = (_batch(whole[epoch], reports.get(epoch), ratio) for epoch in sorted(whole))
    return [replace(b, is_calm=is_calm(b.started, b.ended)) for b in batches]


def _batch(parts: Collection[BatchLoad], report: BatchReport | None, ratio: float) -> SignalBatch:
    useful: dict[str, float] = {}
    for part in parts:
        for worker, seconds in part.useful.items():
            useful[worker] = useful.get(worker, 0.0) + seconds
    rows = sum(part.rows for part in parts)
    started = min(part.started for part in parts)
    seconds = max(part.started + part.seconds for part in parts) - started
    if report is not None:
        started, seconds = report.started, max(report.seconds, 1e-3)
    lag = 0.0 if report is None else report.lag_rows * ratio
    return SignalBatch(started, seconds, rows, useful, max(1, len(useful)), lag)


def _rows_per_source_row(
    whole: Mapping[int, list[BatchLoad]], reports: Mapping[int, BatchReport]
) -> float:
    """Operators' rows for one of the source."""
    found = [
        sum(part.rows for part in parts) / reports[epoch].source_rows
        for epoch, parts in whole.items()
        if epoch in reports and reports[epoch].source_rows
    ]
    return median(found) if found else 1.0
