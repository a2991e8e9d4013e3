"""`anabranch demo`: a stream, a stateful query, a killed worker, and a check against an oracle."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.cli.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from anabranch.cli.main import Subparsers
    from anabranch.service import StateService

ROWS_A_BATCH = 20_000
CUSTOMERS = 5_000
SPREAD = 2_654_435_761
"""Knuth's multiplicative constant: spreads order numbers over customers, in Spark and in NumPy."""


def register(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "demo",
        help="a small streaming query that survives the death of a worker",
        description=(
            "Counts orders and sums amounts for each customer of a generated stream, kills a "
            "worker in the middle, and compares the result with a sequential computation."
        ),
    )
    parser.add_argument("--seconds", type=float, default=20, help="how long to run (20)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    parser.set_defaults(run=run_demo)


@dataclass
class Sink:
    """An idempotent sink: the last value of each customer, by batch id."""

    totals: dict[int, tuple[int, int]] = field(default_factory=dict)
    batches: int = 0

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """foreachBatch's function."""
        rows = batch.toArrow().to_pydict()
        values = zip(rows["orders"], rows["amount"], strict=True)
        self.totals.update(zip(rows["customer"], values, strict=True))
        self.batches = batch_id + 1


def run_demo(args: argparse.Namespace) -> int:
    """Run it; the exit code says whether the results were right."""
    check_java()
    print("Starting Spark and the state service ...", flush=True)
    from anabranch.bench.session import spark_session
    from anabranch.service import StateService

    with spark_session(memory="1g") as (spark, folder):
        state = str(folder / "state")
        with StateService(spark, state, workers=args.workers) as service:
            sink = Sink()
            query = _start_query(spark, service, sink, str(folder / "checkpoint"))
            try:
                _watch(query, service, args.seconds)
            finally:
                query.stop()
            if query.exception() is not None:
                print(f"The query failed: {query.exception()}", file=sys.stderr)
                return 1
            return _verdict(sink)


def _start_query(
    spark: SparkSession, service: StateService, sink: Sink, checkpoint: str
) -> StreamingQuery:
    from pyspark.sql import functions as F

    from anabranch import agg

    orders = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_A_BATCH)
        .option("numPartitions", 2)
        .load()
        .select(
            ((F.col("value") * SPREAD) % CUSTOMERS).alias("customer"),
            (F.col("value") % 100).alias("amount"),
        )
    )
    totals = service.group_by(orders, "customer").aggregate(
        orders=agg.count(), amount=agg.sum("amount"), name="totals"
    )
    return (
        totals.writeStream.foreachBatch(sink.write)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def _watch(query: StreamingQuery, service: StateService, seconds: float) -> None:
    """Print a line for each batch; kill a worker half way."""
    print(
        f"Running for {seconds:.0f} seconds. Orders are counted and summed for each customer; "
        "state lives in the workers.\n"
    )
    print(f"{'batch':>6} {'rows':>8} {'duration':>10} {'state rows':>11}  workers")
    shown = -1
    started: float | None = None
    is_killed = False
    while query.isActive and (started is None or time.monotonic() - started < seconds):
        for report in query.recentProgress:
            if report["batchId"] > shown and report["numInputRows"]:
                shown = report["batchId"]
                started = started or time.monotonic()
                print(_line(report, service.status()), flush=True)
        if started is not None and not is_killed and time.monotonic() - started > seconds / 2:
            is_killed = True
            _kill_one(service)
        time.sleep(0.1)


def _line(report: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    workers = "  ".join(
        f"{name} {worker['status']}"
        + f" (restarts: {worker['restarts']})" * (worker["restarts"] > 0)
        for name, worker in status["workers"].items()
    )
    batch, rows = report["batchId"], report["numInputRows"]
    duration = f"{report['durationMs']['triggerExecution']} ms"
    state_rows = status["operators"]["totals"]["rows"]
    return f"{batch:>6} {rows:>8,} {duration:>10} {state_rows:>11,}  {workers}"


def _kill_one(service: StateService) -> None:
    name, worker = next(iter(service.status()["workers"].items()))
    if worker["pid"] is not None:
        print(f"  -> kill -9 of worker {name} (process {worker['pid']}); the query goes on")
        os.kill(worker["pid"], signal.SIGKILL)


def _verdict(sink: Sink) -> int:
    """Compare with a sequential computation over the same orders."""
    import numpy as np

    numbers = np.arange(sink.batches * ROWS_A_BATCH, dtype=np.int64)
    customers = (numbers * SPREAD) % CUSTOMERS
    counts = np.bincount(customers, minlength=CUSTOMERS)
    amounts = np.bincount(customers, weights=numbers % 100, minlength=CUSTOMERS).astype(np.int64)
    expected = {
        customer: (int(counts[customer]), int(amounts[customer]))
        for customer in range(CUSTOMERS)
        if counts[customer]
    }
    wrong = sum(1 for k in expected.keys() | sink.totals if expected.get(k) != sink.totals.get(k))
    print(
        f"\n{len(numbers):,} orders of {len(expected):,} customers in {sink.batches} batches, "
        "one worker killed in the middle."
    )
    if wrong:
        print(f"WRONG: {wrong} customers differ from the sequential computation.")
        return 1
    print("Every count and every sum equals the sequential computation: nothing lost or doubled.")
    return 0
