"""The coordinator's work for a batch, with scripted lanes and workers in one process.

The coordinator and its store are the real ones. Lanes are calls from this thread, so their CPU time
is the thread's.
"""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.service_hosts import HostSettings
from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import encode_changelog
from anabranch.durability.names import changelog_path
from anabranch.durability.pack import PackPart, write_parts
from anabranch.durability.store import StateStore
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.model.keyspace import KeySpace
from anabranch.processes.worker_config import WorkerConfig
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.codec import decode, encode
from anabranch.transport.messages.lanes import Begin, Finish, LaneGrant, TransactionDone
from anabranch_bench.probes.counted_objects import CountedObjects
from anabranch_bench.probes.scripted_workers import (
    ScriptedClock,
    ScriptedDefinition,
    ScriptedWorkers,
)

NAME, QUERY = "counts", "query-1"
STATS = {"rows_updated": 10, "rows_removed": 0, "apply_ms": 3, "write_ms": 2, "state_rows": 100}
START_SECONDS_MAX = 600.0
GOAL_MS = 5.0
"""Of CPU for a begin, and for a finish."""


@dataclass(frozen=True)
class Size:
    """How many of everything."""

    workers: int
    lanes: int
    groups: int

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.lanes} lanes, {self.groups} key groups"


@dataclass(frozen=True)
class BatchCost:
    """What the coordinator spent on one batch."""

    begin_us: list[int]
    """CPU of each lane's begin, in microseconds."""
    finish_us: list[int]
    """CPU of each lane's finish, but for the last one."""
    commit_ms: float
    """CPU of the last finish, which writes the manifest."""
    commit_seconds: float
    process_seconds: float
    """CPU of the whole process until all workers have heard of the commit, scripted ones too."""
    grant_bytes: int
    """The largest answer to a begin."""
    report_bytes: int
    """The largest finish."""
    manifest_bytes: int
    """All that was put beside changelogs and snapshots."""
    requests: dict[str, int]
    """To the store, by kind and folder."""
    fsyncs: int | None = None
    """Of changelogs, in a folder; None: they were not counted."""


@dataclass
class SizeCost:
    """All batches of one size."""

    size: Size
    start_seconds: float
    """Until all workers were up."""
    owners: int
    """That a lane meets, at most."""
    batches: list[BatchCost] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As one line of a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> SizeCost:
        """The inverse."""
        batches = [BatchCost(**batch) for batch in told["batches"]]
        return cls(Size(**told["size"]), told["start_seconds"], told["owners"], batches)

    @property
    def begin_ms(self) -> float:
        """Median of the CPU of a begin."""
        return statistics.median(us for batch in self.batches for us in batch.begin_us) / 1000

    @property
    def finish_ms(self) -> float:
        """Median of the CPU of a finish, with the lane's share of the commit."""
        return statistics.median(
            (sum(batch.finish_us) / 1000 + batch.commit_ms) / self.size.lanes
            for batch in self.batches
        )

    def cells(self) -> list[str]:
        """A row of the table in the documentation; of the commit, manifest and PUTs, the last."""
        last, size = self.batches[-1], self.size
        commit = f"{last.commit_ms:.0f}" if last.commit_ms >= 1 else f"{last.commit_ms:.1f}"
        return [
            f"{size.workers:,} / {size.lanes:,} / {size.groups:,}",
            str(self.owners),
            f"{self.begin_ms:.2f}",
            f"{self.finish_ms:.2f}",
            commit,
            f"{last.manifest_bytes:,}",
            f"{last.requests.get('PUT changelog', 0):,}",
        ]

    @property
    def meets_goal(self) -> bool:
        """Whether a lane costs as little as it may."""
        return self.begin_ms < GOAL_MS and self.finish_ms < GOAL_MS

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        return "\n".join(
            [
                f"{self.size}; a lane meets {self.owners}; up after {self.start_seconds:.1f} s",
                f"  CPU of a begin {self.begin_ms:.3f} ms, of a finish {self.finish_ms:.3f} ms "
                "with its share of the commit",
                f"  commit {_each('commit_ms', self.batches)} ms of CPU",
                f"  manifest {_each('manifest_bytes', self.batches)} bytes",
                f"  largest grant {last.grant_bytes} bytes, finish {last.report_bytes} bytes",
                f"  process {_each('process_seconds', self.batches)} s of CPU",
                f"  fsyncs of changelogs {last.fsyncs}",
                f"  requests of the first batch {_told(first)}",
                f"  requests of the last batch {_told(last)}",
                f"  | {' | '.join(self.cells())} |",
            ]
        )


def _each(name: str, batches: list[BatchCost]) -> str:
    values = [getattr(batch, name) for batch in batches]
    shown = [values[0], statistics.median(values), values[-1]]
    first, middle, last = (f"{value:,.0f}" if value > 20 else f"{value:.2f}" for value in shown)
    return f"{first} (first), {middle} (median), {last} (last)"


def _told(batch: BatchCost) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(batch.requests.items()))


def measure(size: Size, batches: int, folder: bool, say: Callable[[str], None]) -> SizeCost:
    """Run batches of a size, the first one to warm up, on objects in memory or on a folder."""
    objects = CountedObjects()
    with tempfile.TemporaryDirectory(prefix="anabranch-many-") as place:
        blobs = BlobStore(str(Path(place) / "state") if folder else (objects, "bucket"))
        store = StateStore(blobs).open()
        say(f"{size}: workers start")
        begun = time.monotonic()
        with started(store, size) as service:
            service.wait_up()
            cost = SizeCost(size, time.monotonic() - begun, service.owners)
            for epoch in range(batches + 1):
                say(f"{size}: batch {epoch} of {batches}")
                found = service.run_batch(epoch, objects)
                if epoch:
                    cost.batches.append(found)
            return cost


@contextmanager
def started(store: StateStore, size: Size) -> Iterator[ScriptedService]:
    """A coordinator of so many workers, with a script for its lanes."""
    workers = ScriptedWorkers()
    config = functools.partial(
        WorkerConfig, host="127.0.0.1", location="scripted", key_groups=size.groups, bins=16
    )
    keyspace = KeySpace(size.groups, 16)
    hosts = HostSettings(local=lambda: workers)
    coordinator = Coordinator(
        store, ScriptedClock(), keyspace, size.workers, config, "127.0.0.1", hosts=hosts
    )
    try:
        number = coordinator.register(NAME, ScriptedDefinition(), [])
        yield ScriptedService(coordinator, workers, store.blobs, size, number)
    finally:
        coordinator.stop()
        store.close()


class ScriptedService:
    """A coordinator whose lanes and workers follow a script."""

    def __init__(
        self,
        coordinator: Coordinator,
        workers: ScriptedWorkers,
        blobs: BlobStore,
        size: Size,
        definition: int,
    ) -> None:
        self._coordinator = coordinator
        self._workers = workers
        self._blobs = blobs
        self._size = size
        self._definition = definition
        self._numbers = itertools.count(1)
        self._changelog = encode_changelog({})
        self.owners = len({g % size.workers for g in range(0, size.groups, size.lanes)})

    def wait_up(self) -> None:
        """A begin is answered when the owners of its lane are there."""
        for lane in range(self._size.lanes):
            self.timed(self.begin(0, lane))

    def run_batch(self, epoch: int, objects: CountedObjects) -> BatchCost:
        """All lanes begin, all workers write, all lanes finish."""
        begun, put = Counter(objects.requests), Counter(objects.bytes_put)
        process = time.process_time()
        granted = [self.timed(self.begin(epoch, lane)) for lane in range(self._size.lanes)]
        grants = [decode(LaneGrant, answer) for _, answer in granted]
        with self._fsyncs() as fsyncs:
            written = self.written(epoch, grants)
        reports = [self.finish(epoch, lane, done) for lane, done in enumerate(written)]
        finished = [self.timed(report)[0] for report in reports[:-1]]
        before = time.monotonic()
        commit, _ = self.timed(reports[-1])
        seconds = time.monotonic() - before
        self._workers.wait_committed((epoch + 1) * self._size.workers, START_SECONDS_MAX)
        requests, puts = Counter(objects.requests), Counter(objects.bytes_put)
        requests.subtract(begun)
        puts.subtract(put)
        return BatchCost(
            [round(spent * 1e6) for spent, _ in granted],
            [round(spent * 1e6) for spent in finished],
            commit * 1000,
            seconds,
            time.process_time() - process,
            max(len(answer) for _, answer in granted),
            max(map(len, (encode(report) for report in reports))),
            sum(size for kind, size in puts.items() if kind not in ("changelog", "snapshots")),
            {kind: count for kind, count in requests.items() if count},
            fsyncs[0],
        )

    def begin(self, epoch: int, lane: int) -> Begin:
        """What a lane asks."""
        return Begin(
            NAME,
            self._definition,
            QUERY,
            Epoch(epoch),
            Lane(lane),
            self._size.lanes,
            next(self._numbers),
            is_retry=False,
        )

    def written(self, epoch: int, grants: list[LaneGrant]) -> list[tuple[TransactionDone, ...]]:
        """Each worker writes its transactions: one alone, those that end meanwhile together."""
        parts: dict[WorkerId, list[tuple[int, PackPart]]] = {}
        for lane, grant in enumerate(grants):
            for owner in grant.owners:
                number = next(self._numbers)
                path = changelog_path(NAME, epoch, lane, owner.worker, "1", number)
                part = PackPart(path, epoch, owner.groups, self._changelog)
                parts.setdefault(owner.worker, []).append((lane, part))
        done: list[list[TransactionDone]] = [[] for _ in grants]
        for worker, mine in parts.items():
            for together in (mine[:1], mine[1:]):
                refs = write_parts(self._blobs, [part for _, part in together]) if together else []
                for (lane, part), ref in zip(together, refs, strict=True):
                    report = TransactionReport(worker, part.groups, ref.text())
                    done[lane].append(TransactionDone(report, STATS))
        return list(map(tuple, done))

    @contextmanager
    def _fsyncs(self) -> Iterator[list[int | None]]:
        """How many there are inside, if files are in a folder."""
        counted: list[int | None] = [0 if self._blobs.is_local else None]
        fsync = os.fsync

        def count(fd: Any) -> None:
            if counted[0] is not None:
                counted[0] += 1
            fsync(fd)

        os.fsync = count
        try:
            yield counted
        finally:
            os.fsync = fsync

    def finish(self, epoch: int, lane: int, done: tuple[TransactionDone, ...]) -> Finish:
        """What a lane says at its end."""
        lanes = self._size.lanes
        return Finish(NAME, self._definition, Epoch(epoch), Lane(lane), lanes, done, STATS)

    def timed(self, request: Begin | Finish) -> tuple[float, bytes]:
        """CPU seconds from the request's bytes to those of the answer."""
        content, kind = encode(request), type(request)
        started = time.thread_time()
        answer = encode(self._coordinator.calls.call(decode(kind, content)))
        return time.thread_time() - started, answer
