"""Every dataflow equals its oracle: quiet, rescaled, killed inside a batch, restarted."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.tests.spark.riotbench.running import (
    Event,
    Lots,
    check,
    kill_inside_a_batch,
    nothing,
    rescale,
    rescale_and_kill,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from anabranch import StateService
from anabranch_bench.workloads.riotbench.charts import ChartFolder
from anabranch_bench.workloads.riotbench.datasets import DATASETS
from anabranch_bench.workloads.riotbench.etl import Etl
from anabranch_bench.workloads.riotbench.modelstore import ModelStore
from anabranch_bench.workloads.riotbench.pred import Prediction
from anabranch_bench.workloads.riotbench.stats import Stats
from anabranch_bench.workloads.riotbench.streams import Messages, find_messages
from anabranch_bench.workloads.riotbench.table import RowTable
from anabranch_bench.workloads.riotbench.train import Training
from anabranch_bench.workloads.riotbench.training import announce
from anabranch_bench.workloads.source import event_stream, one_query
from anabranch_bench.workloads.verify import Collected, verify

BATCHES = 5


def cases(quiet: str, rescaled: str, killed: str, *marks: Any) -> Callable[..., None]:
    """Another data set for each event: the operators are the same. Single events are for soak."""
    pairs = [(quiet, nothing), (rescaled, rescale), (killed, kill_inside_a_batch)]
    alone = [
        pytest.param(dataset, event, id=f"{dataset}-{event.__name__}", marks=pytest.mark.soak)
        for dataset, event in pairs
    ]
    name = f"{rescaled}-rescale_and_kill"
    both = pytest.param(rescaled, rescale_and_kill, id=name, marks=marks)
    return pytest.mark.parametrize(("dataset", "event"), [both, *alone])


@cases("taxi", "city", "fit")
def test_etl(spark: SparkSession, tmp_path: Path, dataset: str, event: Event) -> None:
    stream = find_messages(dataset, sensors=40)
    table = str(tmp_path / "rows.sqlite")
    rows = 1500
    check(spark, tmp_path, Etl(stream, table=table), rows, BATCHES, event)
    stored = RowTable(table).between(0, 1 << 60)
    columns = len(stream.dataset.columns) + len(stream.dataset.annotations)
    assert len(stored) == rows
    assert all(row.count(",") == columns - 1 for row in stored)


@cases("grid", "city", "taxi")
def test_stats(spark: SparkSession, tmp_path: Path, dataset: str, event: Event) -> None:
    """Charts of everything, and as many archives as they fill."""
    small = replace(DATASETS[dataset], flush_after=15, charts_per_archive=10)
    folder = ChartFolder(str(tmp_path / "charts"), small.charts_per_archive)
    workload = Stats(Messages(small, sensors=20), folder.path)
    rows = 4000 if dataset == "grid" else 1000
    found = pa.concat_tables(check(spark, tmp_path, workload, rows, BATCHES, event)["points"])
    assert set(found.column("statistic").to_pylist()) == {"average", "trend", "distinct"}
    charts = found.group_by(["statistic", "sensor", "shard", "flush"]).aggregate([]).num_rows
    assert len(folder.archives) == charts // folder.size > 0
    assert len(folder.waiting) == charts % folder.size
    for archive in folder.archives:
        assert len(zipfile.ZipFile(archive).namelist()) == folder.size


RANGE_SECONDS = {"grid": 10.0, "taxi": 240.0, "city": 40.0}


@cases("grid", "taxi", "city", pytest.mark.soak)
def test_train(spark: SparkSession, tmp_path: Path, dataset: str, event: Event) -> None:
    """Two models for each range, uploaded, the last ones current."""
    models = str(tmp_path / "models")
    stream = find_messages(dataset, sensors=40)
    workload = Training(stream, models, range_seconds=RANGE_SECONDS[dataset])
    found = check(spark, tmp_path, workload, 2400, BATCHES, event)["models"]
    names = sorted(set(pa.concat_tables(found).column("name").to_pylist()))
    store = ModelStore(models)
    assert len(names) >= 4
    assert store.current(dataset) == {"DTC": names[len(names) // 2 - 1], "MLR": names[-1]}
    for name in names:
        assert store.load(name).n_features_in_ >= 1


@cases("fit", "grid", "taxi", pytest.mark.soak)
def test_pred(spark: SparkSession, tmp_path: Path, dataset: str, event: Event) -> None:
    """New models come while it runs; each message is predicted once, with one of them."""
    models = str(tmp_path / "models")
    workload = Prediction(find_messages(dataset, sensors=40), models, block=100)

    def update() -> None:
        for trained in workload.retraining.upload(1):
            announce(workload.store, None, trained)

    rows = 2500
    batches = check(spark, tmp_path, workload, rows, BATCHES, event, update)["errors"]
    found = pa.concat_tables(batches).sort_by("id")
    assert found.column("id").to_pylist() == list(range(rows))
    for kind, column in (("MLR", "regression"), ("DTC", "tree")):
        old, new = (f"{dataset}-{kind}-{n}.model" for n in (0, 1))
        models_used = [old] * 1000 + [new] * 1500
        assert found.column(column).to_pylist() == models_used, "all tasks change at once"
    assert found.column("error").null_count < rows // 2


class Restarted:
    """PRED in a driver that dies in its second batch, and in the one that takes over."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.rows, self._size = 1500, 500

    def workload(self) -> Prediction:
        """A new object, as in a new process."""
        models, pins = (str(self._folder / name) for name in ("models", "pins"))
        return Prediction(find_messages("city", sensors=40), models, block=100, pins=pins)

    def run(self, workload: Prediction, write: Callable[[DataFrame, int], None]) -> None:
        """Until there are no more rows, or until the query fails."""
        gate = self._folder / "gate"
        gate.touch()
        pace = Lots(self._size, self.rows, gate, gate)
        location = str(self._folder / "state")
        with StateService(self._spark, location, workers=2, key_groups=16) as service:
            events = event_stream(self._spark, workload.events, pace)
            query = (
                one_query(workload.build(service, events))
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", str(self._folder / "checkpoint"))
                .start()
            )
            try:
                query.processAllAvailable()
            finally:
                query.stop()


@pytest.mark.soak
def test_a_batch_that_runs_again_predicts_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """The driver dies in a batch; when another one repeats it, there are newer models."""
    restarted = Restarted(spark, tmp_path)
    sink, seen = Collected(["errors"]), []
    first = restarted.workload()

    def die_in_the_second(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            seen.append(batch.toArrow())
            raise RuntimeError("the driver dies here")
        sink.write(batch, batch_id)

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        restarted.run(first, die_in_the_second)
    for trained in first.retraining.upload(1):
        announce(first.store, None, trained)
    second = restarted.workload()
    restarted.run(second, sink.write)

    batches = [batch.sort_by("id") for batch in sink.batches("errors") if batch.num_rows]
    assert batches[1].equals(seen[0].sort_by("id"))
    used = [set(batch.column("tree").to_pylist()) for batch in batches]
    assert used == [{"city-DTC-0.model"}, {"city-DTC-0.model"}, {"city-DTC-1.model"}]
    assert [str(v) for v in verify(second, restarted.rows, sink)] == [
        "errors: all 1,500 rows are right"
    ]
