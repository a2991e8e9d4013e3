"""What driver programs do: a service, queries under load, and the sequential computation.

Row i of the stream is an order: customer (i * SPREAD) % customers, amount i % 100. So the rows of
every batch are known; every output row and all state can be computed again, one by one.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from anabranch.errors import ReconfigurationFailed
from anabranch.spark.grouping import GroupedStream
from anabranch_bench.testbed.driver_program import Stage

ROWS = 500
"""In each batch."""
CUSTOMERS = 1000
SPREAD = 2_654_435_761
MODULUS = 1_000_003
"""Of the chain: a value that only the right rows in the right order give."""
NOTE_LETTERS = 6_000
"""Kept for each customer, so that a move takes its time and state does not fit anywhere."""
SITES = ("berlin", "paris")
WRONG_SHOWN = 5
TWICE = -1
"""Instead of a customer: the batch has put out something for a customer more than once."""

Rows = dict[int, tuple[int, ...]]


class Chain(StatefulProcessor):
    """Counts a customer's orders and chains their numbers; says what it had before.

    The first order leaves a long note, which stays.
    """

    OUTPUT = "customer long, before long, orders long, chain long"

    def __init__(self, letters: int) -> None:
        """Of each note."""
        self._letters = letters

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Two values for each customer."""
        self._state = handle.getValueState("chain", "orders long, chain long")
        self._note = handle.getValueState("note", "text string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """In the order of the stream, whatever the order of arrival."""
        before, chain = self._state.get() or (0, 0)
        orders = before
        if not orders:
            self._note.update((note_of(key[0], self._letters),))
        for number in sorted(row.row for row in rows):
            orders, chain = orders + 1, next_link(chain, number)
        self._state.update((orders, chain))
        yield Row(customer=key[0], before=before, orders=orders, chain=chain)


def next_link(chain: int, number: int) -> int:
    """The chain with one more order."""
    return (chain * 31 + number) % MODULUS


def site_of(customer: int) -> str:
    """Each customer belongs to one."""
    return SITES[customer % len(SITES)]


def site_column(customer: Any) -> Any:
    """The same, in Spark."""
    names = F.array(*(F.lit(site) for site in SITES))
    return F.element_at(names, (customer % len(SITES)).cast("int") + 1)


def note_of(customer: int, letters: int) -> str:
    """What no compression makes much shorter."""
    return hashlib.shake_128(str(customer).encode()).hexdigest(letters // 2)


class CheckedQuery:
    """A running query; each batch is kept as the sink got it, to be checked at the end.

    Batch n has the rows from n * ROWS on: Spark's own source makes them, in the JVM.
    """

    def __init__(
        self, stage: Stage, name: str, make: Callable[[DataFrame], DataFrame], seconds: float
    ) -> None:
        """A batch begins every so many seconds, or when the one before is done."""
        self._stage, self.name, self._make, self._seconds = stage, name, make, seconds
        self.batches: dict[int, list[Rows]] = {}
        """The outputs each time that Spark ran the batch."""
        self.query: Any = None
        self.letters = NOTE_LETTERS
        self.checkpoint = stage.folder / f"checkpoint-{name}"

    def start(self) -> None:
        """Start or restart it on its checkpoint."""
        rows = self._stage.spark.readStream.format("rate-micro-batch")
        orders = (
            rows.option("rowsPerBatch", ROWS)
            .option("numPartitions", 2)
            .load()
            .select(
                F.col("value").alias("row"),
                ((F.col("value") * SPREAD) % CUSTOMERS).alias("customer"),
                (F.col("value") % 100).alias("amount"),
            )
        )
        self.query = (
            self._make(orders)
            .writeStream.foreachBatch(self._write)
            .outputMode("update")
            .trigger(processingTime=f"{round(1000 * self._seconds)} milliseconds")
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )
        threading.Thread(target=self._watch, args=(self.query,), daemon=True).start()

    def _write(self, batch: DataFrame, number: int) -> None:
        table = batch.toArrow()
        columns = [table.column(name).to_pylist() for name in table.column_names]
        outputs: Rows = {}
        for key, *values in zip(*columns, strict=True):
            outputs[key] = max(outputs.get(key, ()), tuple(values))
        if len(outputs) != table.num_rows:
            outputs[TWICE] = (table.num_rows,)
        self.batches.setdefault(number, []).append(outputs)
        self._stage.tell("batch", query=self.name, number=number)

    def _watch(self, query: Any) -> None:
        try:
            query.awaitTermination()
            self._stage.tell("ended", query=self.name, error=None)
        except Exception as error:
            self._stage.tell("ended", query=self.name, error=str(error))


class OrdersOracle:
    """The same computation, one row after the other."""

    def __init__(self) -> None:
        self.batches = 0
        self.orders = np.zeros(CUSTOMERS, dtype=np.int64)
        self.amounts = np.zeros(CUSTOMERS, dtype=np.int64)
        self.chains = [0] * CUSTOMERS

    def batch(self, number: int) -> dict[str, Rows]:
        """What each operator must put out for the rows of the next batch."""
        assert number == self.batches, "A batch is missing."
        self.batches += 1
        numbers = np.arange(number * ROWS, (number + 1) * ROWS, dtype=np.int64)
        customers = (numbers * SPREAD) % CUSTOMERS
        before = self.orders.copy()
        np.add.at(self.orders, customers, 1)
        np.add.at(self.amounts, customers, numbers % 100)
        for row, customer in zip(numbers.tolist(), customers.tolist(), strict=True):
            self.chains[customer] = next_link(self.chains[customer], row)
        return self._outputs(np.unique(customers), before)

    def state(self) -> dict[str, Rows]:
        """What each operator must know in the end."""
        everyone = np.flatnonzero(self.orders)
        found = self._outputs(everyone, self.orders)
        return {**found, "chain": {key: row[1:] for key, row in found["chain"].items()}}

    def _outputs(
        self, customers: npt.NDArray[np.int64], before: npt.NDArray[np.int64]
    ) -> dict[str, Rows]:
        keys = customers.tolist()
        totals: Rows = {c: (int(self.orders[c]), int(self.amounts[c])) for c in keys}
        chain: Rows = {c: (int(before[c]), int(self.orders[c]), self.chains[c]) for c in keys}
        return {"totals": totals, "chain": chain, "spark": totals, "sites": totals}


# -- functions of the driver program --


def start_service(stage: Stage, hosts: Any = None, folder: str = "state", **options: Any) -> str:
    """A state service; `hosts` as for StateService, or ["module:class", arguments]."""
    import anabranch

    if isinstance(hosts, list):
        module, name = hosts[0].split(":")
        hosts = getattr(importlib.import_module(module), name)(**hosts[1])
    if hosts is not None:
        options["hosts"] = hosts
    location = stage.folder / folder
    stage.service = anabranch.StateService(stage.spark, str(location), **options)
    stage.closing.callback(stage.service.stop)
    return str(location)


def start_query(
    stage: Stage, operator: str, seconds: float = 0.5, letters: int = NOTE_LETTERS
) -> None:
    """`totals`: an aggregate; `chain`: a processor of rows; `spark`: totals by Spark itself.

    `sites`: totals that are placed by the customer's site.
    """

    def totals(orders: DataFrame) -> DataFrame:
        from anabranch import agg

        grouped: GroupedStream = stage.service.group_by(orders, "customer")
        return grouped.aggregate(orders=agg.count(), amount=agg.sum("amount"), name="totals")

    def chain(orders: DataFrame) -> DataFrame:
        grouped: GroupedStream = stage.service.group_by(orders, "customer")
        return grouped.transformWithState(
            Chain(letters), Chain.OUTPUT, "Update", "None", name="chain"
        )

    def spark(orders: DataFrame) -> DataFrame:
        amount = F.sum("amount").alias("amount")
        return orders.groupBy("customer").agg(F.count("*").alias("orders"), amount)

    def sites(orders: DataFrame) -> DataFrame:
        from anabranch import agg

        placed = orders.withColumn("site", site_column(F.col("customer")))
        grouped = stage.service.group_by(placed, "site", "customer", placed_by="site")
        found: DataFrame = grouped.aggregate(
            orders=agg.count(), amount=agg.sum("amount"), name="sites"
        )
        return found.drop("site")

    make = {"totals": totals, "chain": chain, "spark": spark, "sites": sites}[operator]
    stage.queries[operator] = query = CheckedQuery(stage, operator, make, seconds)
    query.letters = letters
    query.start()
    stage.closing.callback(query.query.stop)


def restart_query(stage: Stage, operator: str) -> None:
    """Stop a query, or what is left of it, and start it again on its checkpoint."""
    query = stage.queries[operator]
    query.query.stop()
    query.start()


def check(stage: Stage, late: bool = False) -> dict[str, Any]:
    """Compare all batches so far, and the state, with the sequential computation.

    `late`: rows may come out of a later batch than they came in, as under checkpoint="unaligned".
    Then only the last output of each customer counts.
    """
    verdict: dict[str, Any] = {"batches": {}, "again": 0, "wrong": []}
    for operator, query in stage.queries.items():
        oracle = OrdersOracle()
        batches = {number: list(runs) for number, runs in list(query.batches.items())}
        latest: Rows = {}
        for number in range(len(batches)):
            expected = oracle.batch(number)[operator]
            for outputs in batches[number]:
                latest |= outputs
                where = f"{operator}, batch {number}"
                verdict["wrong"] += [] if late else _differences(where, expected, outputs)
        if late:
            latest = {key: row[-2:] for key, row in latest.items() if key != TWICE}
            where = f"{operator}, last outputs"
            verdict["wrong"] += _differences(where, oracle.state()[operator], latest)
        verdict["batches"][operator] = len(batches)
        verdict["again"] += sum(len(runs) - 1 for runs in batches.values())
        if operator != "spark":
            verdict["wrong"] += _check_state(stage, operator, oracle)
    verdict["wrong"] = verdict["wrong"][:WRONG_SHOWN]
    return verdict


def _check_state(stage: Stage, operator: str, oracle: OrdersOracle) -> list[str]:
    of = (operator, "chain") if operator == "chain" else (operator,)
    keys = list(range(CUSTOMERS))
    asked = [(site_of(key), key) for key in keys] if operator == "sites" else keys
    epoch, values = stage.service.state(*of).read(asked)
    # State may be a batch ahead of the sink: that is the one which was running.
    for number in range(oracle.batches, epoch + 1):
        oracle.batch(number)
    found = {k: tuple(row) for k, row in zip(keys, values, strict=True) if row is not None}
    wrong = _differences(f"{operator}, state of batch {epoch}", oracle.state()[operator], found)
    return wrong if operator != "chain" else [*wrong, *_check_notes(stage, found)]


def _check_notes(stage: Stage, customers: Rows) -> list[str]:
    keys = sorted(customers)
    _, values = stage.service.state("chain", "note").read(keys)
    letters = stage.queries["chain"].letters
    notes = zip(keys, values, strict=True)
    return [
        f"chain: customer {key} has another note"
        for key, row in notes
        if row is None or tuple(row) != (note_of(key, letters),)
    ]


def _differences(where: str, expected: Rows, found: Rows) -> list[str]:
    return [
        f"{where}: customer {key} has {found.get(key)} instead of {expected.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if expected.get(key) != found.get(key)
    ]


def service(stage: Stage, method: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of the service that returns plain values."""
    return json.loads(json.dumps(getattr(stage.service, method)(*args, **kwargs), default=str))


def move(stage: Stage, method: str, *args: Any, **kwargs: Any) -> int:
    """Begin a move; its number."""
    stage.handles.append(getattr(stage.service, method)(*args, **kwargs))
    return len(stage.handles) - 1


def report(stage: Stage, number: int, seconds: float) -> dict[str, Any]:
    """Wait for a move; its report."""
    handle = stage.handles[number]
    with suppress(ReconfigurationFailed):  # its outcome says so
        handle.wait(seconds)
    return {
        "is_over": handle.is_done,
        **json.loads(json.dumps(handle.report().as_json(), default=str)),
    }


def tasks_at_a_time(stage: Stage, count: int, seconds: float) -> int:
    """How many of so many tasks run beside each other; they wait for all of them, so long."""
    folder = stage.folder / f"tasks-{time.monotonic_ns()}"
    folder.mkdir()

    def task(number: int) -> int:
        (folder / str(number)).touch()
        limit = time.monotonic() + seconds
        while len(list(folder.iterdir())) < count and time.monotonic() < limit:
            time.sleep(0.05)
        return len(list(folder.iterdir()))

    tasks = stage.spark.sparkContext.parallelize(range(count), count)
    return min(tasks.map(task).collect())


def cancel_all_jobs(stage: Stage) -> None:
    """As PySpark does at Ctrl-C."""
    stage.spark.sparkContext.cancelAllJobs()


def stop_service(stage: Stage) -> None:
    """Queries first."""
    for query in stage.queries.values():
        query.query.stop()
    stage.service.stop()
