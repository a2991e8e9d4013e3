"""What the evaluation's oracles have to say about the rows that a run has: not nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch_bench.experiments.evaluation_loads import APPS, WORKLOADS
from anabranch_bench.experiments.evaluation_plan import EvaluationSettings
from anabranch_bench.runs.loaded_run import WARM_UP_BATCHES, warm_up_batch_rows

OTHERS = [name for name in WORKLOADS if name not in APPS]
FOREIGN_AND_PENDING = 0.08
"""Messages of strangers, who come too seldom for a window, and results that wait for a flush."""


class Planned:
    """A run of a workload as it is planned: before the load, under load, what must come out."""

    def __init__(self, name: str, settings: EvaluationSettings) -> None:
        load = settings.load(name)
        seconds = settings.settle + 2 * settings.steady
        warm_up = WARM_UP_BATCHES * warm_up_batch_rows(load.rate)
        self.workload = load.make()
        self.begins = load.preload_rows + warm_up
        self.messages = int(seconds * load.rate)
        """Under load, if the move takes no time."""
        batch = self.workload.events.between(0, self.begins + self.messages)
        self.events = pa.Table.from_batches([batch])

    def expected(self) -> Mapping[str, Any]:
        return self.workload.expected(self.events)

    def under_load(self, rows: Any) -> Any:
        """Those that messages under load have caused."""
        return rows.filter(pc.field("id") >= self.begins)

    def share(self, rows: Any) -> float:
        """Of the messages under load, those that are in these rows."""
        found = len(pc.unique(self.under_load(rows).column("id")))
        return found / self.messages


@pytest.fixture(params=["default", "quick"])
def settings(request: pytest.FixtureRequest) -> EvaluationSettings:
    return EvaluationSettings() if request.param == "default" else EvaluationSettings.quick()


@pytest.fixture
def _libraries() -> None:
    for name in ("sklearn", "datasketches", "rbloom", "paho.mqtt"):
        pytest.importorskip(name)


@pytest.mark.usefixtures("_libraries")
class TestRiotbench:
    def test_stats_has_all_its_statistics(self, settings: EvaluationSettings) -> None:
        run = Planned("stats", settings)
        points = run.expected()["points"]
        shares = {
            name: run.share(points.filter(pc.field("statistic") == name))
            for name in ("average", "trend", "distinct")
        }
        window = 5
        assert shares["average"] > (1 - FOREIGN_AND_PENDING) / window / 2
        assert shares["trend"] > 1 - FOREIGN_AND_PENDING
        assert shares["distinct"] > 1 - FOREIGN_AND_PENDING

    def test_pred_has_errors(self, settings: EvaluationSettings) -> None:
        run = Planned("pred", settings)
        run.workload.retraining.start(lambda: False)  # type: ignore[attr-defined]
        errors = run.expected()["errors"]
        assert run.share(errors) == 1
        assert run.share(errors.filter(pc.is_valid(pc.field("error")))) > 1 - FOREIGN_AND_PENDING

    def test_train_has_models_of_ranges_that_end_under_load(
        self, settings: EvaluationSettings
    ) -> None:
        run = Planned("train", settings)
        begins_ms = json.loads(run.events.column("message")[run.begins].as_py())["bt"]
        names = set(run.expected()["models"].column("name").to_pylist())
        later = [n for n in names if int(n.split("-")[2].removesuffix(".model")) > begins_ms]
        assert {name.split("-")[1] for name in later} == {"MLR", "DTC"}

    def test_etl_has_values_to_interpolate(self, settings: EvaluationSettings) -> None:
        run = Planned("etl", settings)
        published = run.expected()["published"]
        assert run.share(published) == 1
        sent, told = (
            [_value(text, "light") for text in rows.column("message").to_pylist()]
            for rows in (run.under_load(run.events), run.under_load(published))
        )
        from_history = [b for a, b in zip(sent, told, strict=True) if a != b and b]
        assert len(from_history) > run.messages / 2


def _value(message: str, name: str) -> float:
    (value,) = (entry["v"] for entry in json.loads(message)["e"] if entry["n"] == name)
    return float(value)


@pytest.mark.parametrize("name", OTHERS)
def test_a_quick_run_has_rows_in_every_output(name: str) -> None:
    run = Planned(name, EvaluationSettings.quick())
    assert all(table.num_rows for table in run.expected().values())
