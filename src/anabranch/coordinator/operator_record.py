"""What the coordinator's runtime remembers of an operator, and the picture that status() gives."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.coordinator import steady_clock
from anabranch.coordinator.calls import STATUS_SECONDS_MAX, ask_all
from anabranch.coordinator.site_traffic import SiteTraffic
from anabranch.coordinator.useful_time import UsefulTime
from anabranch.durability.manifest import DEFERRED, ROWS_WAIT, FileRef, Manifest, parse_refs
from anabranch.durability.names import snapshot_folder
from anabranch.durability.operator_file import OperatorFile
from anabranch.errors import AnabranchError, displaced
from anabranch.model.ids import Epoch, WorkerId
from anabranch.model.routing import Routing
from anabranch.model.stats import STATE_BYTES, add_stats
from anabranch.processes.worker_pool import WorkerPool
from anabranch.processor.contract import BatchTimes, OperatorDefinition
from anabranch.processor.user_code import packed
from anabranch.protocol.coordinator_messages import GrantLane, OperatorRegistered
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.messages.control import Install, OperatorStatus, Status, WorkerStatus
from anabranch.transport.messages.lanes import LaneGrant, LaneOwner, LanePeer, TransactionDone

BATCHES_KEPT = 1000
"""For reports of moves."""
BATCHES_SHOWN = 100
"""By status()."""


@dataclass(slots=True)
class BatchTiming:
    """How long an operator took for one batch, for status()."""

    epoch: int
    started: float
    """Unix time."""
    seconds: float | None = None
    stats: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class OperatorRecord:
    """An operator as the coordinator's runtime knows it."""

    name: str
    definition: OperatorDefinition
    install: Install
    initial: list[str]
    definition_id: int
    is_restored: bool = False
    """From a savepoint: there is state before the first epoch."""
    template: int = 0
    """The definition as the program made it: that of its lanes."""
    place: int | None = None
    """Under `service.enable()`: which one of its class it is in its query."""
    start_empty: bool = False
    """Whether it may begin in the middle of a query."""
    timings: deque[BatchTiming] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    lane_stats: dict[int, dict[str, int]] = field(default_factory=dict)
    times: tuple[int, BatchTimes] | None = None
    begun_epoch: int = -1
    begun: set[int] = field(default_factory=set)
    """Task attempts of that epoch that have begun."""
    existing: tuple[int, list[int]] | None = None
    """The last epoch that exists, and the key groups whose rows waited in it."""
    is_unloadable: bool = False
    """Workers hang when they load it: none is given it any more."""
    failed_attempts: dict[int, AnabranchError] = field(default_factory=dict)
    """Tasks that must not send their rows again, and why."""
    alive_at: float = 0.0
    """When a batch began, one of its lanes came to its end, or it was committed, last."""
    traffic: SiteTraffic | None = None
    """If it has sites."""
    useful: UsefulTime = field(default_factory=UsefulTime)
    """For the autoscaler."""

    def check_begin(self, epoch: int, attempt: int) -> None:
        """Refuse a task that begins twice: it runs several lanes in turn, as coalesce() does."""
        if epoch == self.begun_epoch and attempt in self.begun:
            raise displaced(self.name)

    def check_retry(self, attempt: int) -> None:
        """Refuse a task whose worker was ended because of it."""
        error = self.failed_attempts.get(attempt)
        if error is not None:
            raise error

    def note_begin(self, epoch: int, attempt: int, asked: float, version: int = 0) -> None:
        """A task was allowed to begin, with a routing; `asked` is when it wanted to."""
        if self.begun_epoch != epoch:
            self.begun_epoch, self.begun, self.lane_stats = epoch, set(), {}
            self.failed_attempts = {}
            self.useful.begin(version)
            if self.traffic is not None:
                self.traffic.begin()
            self.timings.append(BatchTiming(epoch, asked))
            self.alive_at = steady_clock.now()
        self.timings[-1].started = min(self.timings[-1].started, asked)
        self.begun.add(attempt)

    def note_finish(
        self, lane: int, stats: dict[str, int], done: Iterable[TransactionDone] = ()
    ) -> None:
        """A lane came to its end; one that runs again and again is no sign of life."""
        self.useful.finish(lane, done)
        if lane not in self.lane_stats:
            self.alive_at = steady_clock.now()
        self.lane_stats[lane] = stats

    def batch_stats(self, lanes: int) -> dict[str, int] | None:
        """What the running batch did, once all its lanes have come to their end."""
        if len(self.lane_stats) < lanes:
            return None
        total: dict[str, int] = {}
        for stats in list(self.lane_stats.values()):
            add_stats(total, stats)
        return total

    def exists(self, manifest: Manifest | None) -> None:
        """The epoch of this manifest exists, and is the last one."""
        if manifest is not None:
            self.existing = manifest.epoch, manifest.extra.get(DEFERRED, [])

    def waits(self, epoch: int, is_shadowed: bool) -> list[int] | None:
        """The key groups whose rows wait in an epoch, if that is settled; None: workers choose.

        Spark may have the outputs of an epoch that runs again: the same rows wait as the first
        time. Where two workers process the same rows, none wait: one drops what the other emits.
        """
        last, waited = self.existing or (None, [])
        if last == epoch:
            return waited
        return [] if is_shadowed else None

    def lane_grant(
        self,
        granted: GrantLane,
        epoch: int,
        times: BatchTimes,
        address: Callable[[WorkerId, int], str | None],
    ) -> LaneGrant:
        """The answer to a lane that may begin."""

        numbers = granted.incarnations

        def relay(worker: WorkerId) -> LanePeer | None:
            via = granted.relays.get(worker)
            at = None if via is None else address(via, numbers[via])
            return None if via is None or at is None else LanePeer(via, numbers[via], at)

        def owner(worker: WorkerId, groups: tuple[int, ...]) -> LaneOwner:
            number = numbers[worker]
            return LaneOwner(worker, number, address(worker, number), groups, relay(worker))

        def where(groups_of: Mapping[WorkerId, tuple[int, ...]]) -> tuple[LaneOwner, ...]:
            return tuple(owner(*each) for each in groups_of.items())

        waits = self.waits(epoch, bool(granted.shadows))
        return LaneGrant(
            self.name,
            self.definition_id,
            granted.version,
            granted.base,
            where(granted.owners),
            where(granted.shadows),
            times,
            tuple(self.initial),
            None if waits is None else tuple(waits),
        )

    def notes(
        self, epoch: int, checkpoint: str, transactions: Iterable[TransactionReport]
    ) -> dict[str, Any]:
        """For the manifest: the batch's clocks; whether state may have rows that wait."""
        notes: dict[str, Any] = {}
        if self.times is not None and self.times[0] == epoch:
            notes["times"] = asdict(self.times[1])
        if checkpoint in ("unaligned", "independent"):
            notes[ROWS_WAIT] = checkpoint
        deferred = sorted(group for tx in transactions for group in tx.deferred)
        if deferred:  # perhaps as the mode before had it
            notes = {ROWS_WAIT: "unaligned", **notes, DEFERRED: deferred}
        return notes

    def note_commit(self, epoch: int) -> float | None:
        """The epoch exists; how long it took."""
        self.alive_at = steady_clock.now()
        if self.traffic is not None:
            self.traffic.commit()
        timing = self.timings[-1] if self.timings else None
        if timing is None or timing.epoch != epoch:
            return None
        timing.seconds = steady_clock.now() - timing.started
        timing.stats = stats = self.batch_stats(0) or {}
        rows, size = stats.get("rows_input", 0), stats.get(STATE_BYTES, 0)
        self.useful.commit(epoch, timing.started, timing.seconds, rows, size)
        return timing.seconds


def install_message(
    name: str, definition_id: int, definition: OperatorDefinition, is_restored: bool = False
) -> Install:
    """An operator as it is installed in workers."""
    path = tuple(os.path.abspath(path) for path in sys.path)
    pickled = packed(definition)
    return Install(name, definition_id, path, is_restored, in_background=False, pickled=pickled)


def registered(
    record: OperatorFile, epochs: Sequence[int], start_empty: bool, is_released: bool = False
) -> OperatorRegistered:
    """What the protocol must know of an operator's location."""
    *_, before, committed = (None, None, *map(Epoch, epochs))
    return OperatorRegistered(
        record.name,
        record.query_id,
        committed,
        before,
        None if record.first_epoch is None else Epoch(record.first_epoch),
        start_empty,
        None if record.restored_epoch is None else Epoch(record.restored_epoch),
        record.continues,
        is_released,
    )


def describe(
    summary: Mapping[str, Any],
    routing: Routing,
    operators: Mapping[str, OperatorRecord],
    pool: WorkerPool,
    stuck: Callable[[WorkerId], Any],
) -> dict[str, Any]:
    """Plain values about workers and operators; `stuck` is user code that hangs in a worker."""
    pids, hosts = pool.pids(), pool.hosts()
    reports = ask_all(pool.peers(), Status(), STATUS_SECONDS_MAX)
    owned = Counter(routing.owners)
    return {
        "routing_version": summary["routing_version"],
        "key_groups": len(routing.owners),
        "workers": {
            worker: {
                "status": phase,
                "host": hosts.get(worker),
                "pid": pids.get(worker),
                "restarts": restarts,
                "key_groups": owned[worker],
                **_totals(reports.get(worker)),
                "stuck": stuck(worker),
                "busy_seconds": _busy(reports.get(worker)),
            }
            for worker, (phase, restarts) in summary["workers"].items()
        },
        "operators": {
            name: {
                "last_epoch": committed,
                **_operator_totals(name, reports),
                "in_memory": _in_memory(name, reports, owned)
                if committed is not None or operators[name].is_restored
                else 1.0,  # of nothing
                "hit_rate": _hit_rate(name, reports),
                "traffic": _traffic(operators[name]),
                "batches": [
                    asdict(timing) for timing in list(operators[name].timings)[-BATCHES_SHOWN:]
                ],
            }
            for name, committed in summary["committed"].items()
        },
    }


def _traffic(operator: OperatorRecord) -> dict[str, Any] | None:
    return None if operator.traffic is None else operator.traffic.describe()


def _totals(report: WorkerStatus | None) -> dict[str, int | None]:
    return {
        **_added_up(report.operators.values() if report else ()),
        "resident_bytes": report.resident_bytes if report else None,
        "peak_resident_bytes": report.peak_resident_bytes if report else None,
    }


def _busy(report: WorkerStatus | None) -> dict[str, dict[str, float]]:
    """By operator and activity, since the process started."""
    operators = report.operators if report is not None else {}
    return {name: each.busy_seconds for name, each in operators.items()}


def _operator_totals(name: str, reports: Mapping[WorkerId, WorkerStatus]) -> dict[str, int]:
    return _added_up(_of_operator(name, reports))


def _added_up(found: Iterable[OperatorStatus]) -> dict[str, int]:
    held = list(found)
    return {"rows": sum(each.rows for each in held), "bytes": sum(each.bytes for each in held)}


def _of_operator(name: str, reports: Mapping[WorkerId, WorkerStatus]) -> list[OperatorStatus]:
    return [report.operators[name] for report in reports.values() if name in report.operators]


def _in_memory(
    name: str, reports: Mapping[WorkerId, WorkerStatus], owned: Mapping[WorkerId, int]
) -> float:
    """Share of the state, by bins; after a restart it comes from the store."""
    here = 0.0
    for worker, groups in owned.items():
        report = reports.get(worker)
        if report is not None and name in report.operators:  # else it has just started, or gone
            in_store = report.operators[name].bins_in_store
            here += groups - in_store / report.bins
    return round(max(0.0, here / max(1, sum(owned.values()))), 3)


def _hit_rate(name: str, reports: Mapping[WorkerId, WorkerStatus]) -> float | None:
    """Share of rows whose key was in memory, since the workers started.

    None: there were none, or the backend does not tell.
    """
    rows, missed = 0, 0
    for operator in _of_operator(name, reports):
        if operator.rows_missed is None:
            return None
        rows, missed = rows + operator.rows_seen, missed + operator.rows_missed
    return round(max(0.0, 1 - missed / rows), 4) if rows else None


def written_files(
    operator: str, transactions: Iterable[TransactionReport]
) -> tuple[list[FileRef], list[FileRef]]:
    """What transactions have made durable: changelogs, and whole states of key groups."""
    changelogs: list[FileRef] = []
    full: list[FileRef] = []
    folder = snapshot_folder(operator)
    for tx in transactions:
        for ref in parse_refs(tx.changelog) if tx.changelog is not None else ():
            kind = full if ref.path.startswith(folder) else changelogs
            if tx.groups == ref.groups:
                kind.append(ref)
            elif groups := set(tx.groups).intersection(ref.groups):
                kind.append(ref.only(groups))
    return changelogs, full
