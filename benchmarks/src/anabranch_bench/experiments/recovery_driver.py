"""One life of a Spark driver under `anabranch bench recovery`; it ends by SIGKILL.

usage: python -m anabranch_bench.experiments.recovery_driver PLAN (JSON). It loads the state, or
measures the first commit after a crash; then it runs batch after batch until it is killed. On its
standard output it says what has happened, a line of JSON each. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import Burst, load_frame
from anabranch.loadtest.session import new_session
from anabranch.service import StateService
from anabranch_bench.probes.workers import wait_until_in_memory
from anabranch_bench.results.loads import KEY_BYTES
from anabranch_bench.runs.key_counts import counts, native_counts

SPARK = "spark"
"""Side: Spark's own operator."""

SAID = "ANABRANCH "
"""Begins each line that is meant for the parent."""

FILL_BYTES_A_BATCH = 64 << 20
POLL_SECONDS = 0.01
FOREVER_ROWS = 1 << 40

SETTINGS = {
    # Both sides have their snapshots made soon after the state was loaded; Spark's default is 60 s.
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
}

Make = Callable[[Path], DataFrame]


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """What a driver is to do; paths are of folders that it shares with those before and after."""

    folder: str
    side: str
    fills: bool
    keys: int
    payload_bytes: int
    rows: int
    """Of a batch, once the state is loaded."""
    workers: int
    settle_seconds: float
    memory: str = "4g"

    def encode(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> DriverPlan:
        """The inverse."""
        return cls(**json.loads(text))


def tell(event: str, **facts: Any) -> None:
    """To the parent."""
    sys.stdout.write(SAID + json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def committed_row(checkpoint: Path) -> int:
    """The row after the last one that Spark has committed."""
    if not (checkpoint / "metadata").exists():
        return 0
    log = SparkCheckpoint(str(checkpoint))
    last = log.last_commit()
    return 0 if last is None else int(log.offsets(last)[0]["row"])


class Life:
    """From a session that is ready to the kill."""

    def __init__(self, spark: SparkSession, plan: DriverPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._folder = Path(plan.folder)

    def run(self) -> None:
        """Does not return unless something fails."""
        started = time.time()
        with self._side() as (make, service):
            row = committed_row(self._folder / "checkpoint")
            query = LoadedQuery(make, self._folder, row)
            if self._plan.fills:
                self._fill(query)
            else:
                self._recover(query, service, started)
            tell("running")
            query.burst(FOREVER_ROWS, self._plan.rows, lambda _: None)

    def _fill(self, query: LoadedQuery) -> None:
        """Every key once, then small batches: snapshots and changelogs, as in daily use."""
        plan = self._plan
        query.start()
        rows = max(1000, FILL_BYTES_A_BATCH // (plan.payload_bytes + KEY_BYTES))
        query.burst(plan.keys, rows, lambda done: tell("say", text=f"loading, {done:.0%}"))
        end = time.monotonic() + plan.settle_seconds
        while time.monotonic() < end:
            query.burst(plan.rows, plan.rows, lambda _: None)
        tell("filled")

    def _recover(self, query: LoadedQuery, service: StateService | None, started: float) -> None:
        before = query.next_row
        query.start(Burst(before + self._plan.rows, self._plan.rows))
        while query.next_row == before:
            query.watch(POLL_SECONDS)
        batch = query.batches[-1]
        facts: dict[str, Any] = {"seconds": batch.committed - started, "rows": batch.rows}
        if service is not None:
            batches = service.status()["operators"]["counts"]["batches"]
            facts["load_seconds"] = batches[0]["stats"].get("load_ms", 0) / 1000
        tell("committed", **facts)
        if service is not None:
            wait_until_in_memory(service, lambda text: tell("say", text=text))
            tell("whole", seconds=time.time() - started)

    @contextmanager
    def _side(self) -> Iterator[tuple[Make, StateService | None]]:
        plan = self._plan
        if plan.side == SPARK:
            yield self._native, None
            return
        location = str(self._folder / "state")
        with StateService(self._spark, location, workers=plan.workers, state=plan.side) as service:
            size = plan.payload_bytes
            yield lambda schedule: counts(service, self._load(schedule), size), service

    def _native(self, schedule: Path) -> DataFrame:
        return native_counts(self._load(schedule), self._plan.payload_bytes)

    def _load(self, schedule: Path) -> DataFrame:
        return load_frame(self._spark, schedule, self._plan.keys, self._plan.payload_bytes)


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns at the end of the pipe
    os._exit(1)


def main() -> None:
    """Ended by the parent, or by its end."""
    plan = DriverPlan.decode(sys.argv[1])
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    scratch = Path(os.environ["TMPDIR"])
    # A killed JVM leaves what it has unpacked.
    options = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}"}
    spark = new_session(scratch, memory=plan.memory, more={**SETTINGS, **options})
    tell("session")
    Life(spark, plan).run()


if __name__ == "__main__":
    main()
