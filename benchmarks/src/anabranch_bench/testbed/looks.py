"""What a test asks of a driver that runs the workload, by `Driver.call("module:function")`."""

from __future__ import annotations

from typing import Any

from anabranch.cli.main import main
from anabranch_bench.testbed.driver_program import Stage
from anabranch_bench.testbed.workload import CUSTOMERS, WRONG_SHOWN, OrdersOracle, note_of


def move_state(stage: Stage, number: int) -> dict[str, Any]:
    """How far a move is, and whether it is over."""
    handle = stage.handles[number]
    return {"is_over": handle.is_done, "progress": handle.progress}


def tasks_by_host(stage: Stage) -> dict[str, int]:
    """Tasks that have ended on each host's executors: of lanes, for an agent's task goes on."""
    status = stage.spark.sparkContext._jsc.sc().statusStore()
    executors = status.executorList(False)
    found: dict[str, int] = {}
    for index in range(executors.size()):
        told = executors.apply(index)
        host = str(told.hostPort()).rpartition(":")[0]
        found[host] = found.get(host, 0) + int(told.completedTasks())
    return found


def wrong_rows(stage: Stage) -> list[str]:
    """What the state reader finds of the chain, compared row by row; its tasks are Spark's."""
    epoch = stage.service.status()["operators"]["chain"]["last_epoch"]
    oracle = OrdersOracle()
    for number in range(epoch + 1):
        oracle.batch(number)
    chains = oracle.state()["chain"]
    found = {
        row.key.customer: (row.value.orders, row.value.chain)
        for row in _read(stage, "chain", epoch)
    }
    notes = {row.key.customer: row.value.text for row in _read(stage, "note", epoch)}
    wrong = [
        f"{customer}: {found.get(customer)} instead of {chains.get(customer)}"
        for customer in range(CUSTOMERS)
        if found.get(customer) != chains.get(customer)
    ]
    letters = stage.queries["chain"].letters
    wrong += [
        f"{each}: another note" for each in chains if notes.get(each) != note_of(each, letters)
    ]
    return wrong[:WRONG_SHOWN]


def _read(stage: Stage, variable: str, epoch: int) -> list[Any]:
    reader = stage.spark.read.format("anabranch").option("operatorName", "chain")
    reader = reader.option("stateVarName", variable).option("batchId", epoch)
    return reader.load(str(stage.folder / "state")).collect()


def savepoint(stage: Stage, name: str) -> dict[str, Any]:
    """Its path, and the batch of each operator."""
    made = stage.service.savepoint(name)
    return {"path": str(made.path), "epochs": dict(made.epochs)}


def end_for(stage: Stage, savepoint: dict[str, Any]) -> None:
    """Stop all, and forget what came after a savepoint: checkpoints are made from it."""
    for name, query in stage.queries.items():
        identity = query.query.id
        query.query.stop()
        query.batches = {n: b for n, b in query.batches.items() if n <= savepoint["epochs"][name]}
        query.checkpoint = stage.folder / f"checkpoint-{name}-restored"
        words = ["savepoint", "checkpoint", savepoint["path"], str(query.checkpoint)]
        assert main([*words, "--query", identity]) == 0
    stage.service.stop()


def restart_queries(stage: Stage) -> None:
    """On their checkpoints, with the service that there is now."""
    for query in stage.queries.values():
        query.start()
        stage.closing.callback(query.query.stop)
