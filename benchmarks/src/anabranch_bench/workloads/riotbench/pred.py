"""PRED: classifies and predicts every message, with models that change, and estimates the error."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch_bench.workloads.contract import Output, Workload
from anabranch_bench.workloads.riotbench.averages import BlockAverage
from anabranch_bench.workloads.riotbench.estimation import ErrorEstimate
from anabranch_bench.workloads.riotbench.modelstore import ModelStore, Pins, temporary_folder
from anabranch_bench.workloads.riotbench.mqtt import Address
from anabranch_bench.workloads.riotbench.observations import ParseFeatures, through
from anabranch_bench.workloads.riotbench.oracle.pred import expected_errors
from anabranch_bench.workloads.riotbench.prediction import PREDICTED, Predict, PublishResults
from anabranch_bench.workloads.riotbench.retraining import Retraining
from anabranch_bench.workloads.riotbench.streams import Messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from anabranch.service import StateService

TOLERANCE = 1e-9


class Prediction(Workload):
    """Predictive analytics. Models come from the folder `models`, always the current ones.

    With `retrain_seconds`, new models are trained on history in the background and announced, by
    MQTT if there is a `broker`. `pins` is a folder for which models each block of messages was
    predicted with: keep it as long as the query's checkpoint, for batches that run again after a
    restart. Without these folders there are temporary ones, which end with the driver.
    """

    def __init__(
        self,
        stream: Messages,
        models: str | None = None,
        broker: Address | None = None,
        retrain_seconds: float | None = None,
        block: int = 1000,
        pins: str | None = None,
    ) -> None:
        self.name = f"riotbench pred {stream.dataset.name}"
        self.description = "Classify and predict sensor values; models change while it runs"
        self.events = stream
        self.outputs: Mapping[str, Output] = {"errors": Output(tolerance=TOLERANCE)}
        self._stream = stream
        self._broker = broker
        self._models = models
        self._retrain_seconds = retrain_seconds
        self._block = block
        self._pins = pins

    @cached_property
    def store(self) -> ModelStore:
        """Where models are."""
        return ModelStore(self._models or temporary_folder())

    @cached_property
    def pins(self) -> Pins:
        """Which models were used."""
        folder = self._pins or temporary_folder()
        return Pins(self.store, self._stream.dataset.name, folder, self._block)

    @cached_property
    def retraining(self) -> Retraining:
        """Where models come from."""
        return Retraining(self._stream, self.store, self._broker, self._retrain_seconds)

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """Two stateful operators by sensor: block average, error estimate."""
        dataset = self._stream.dataset
        self.retraining.start(lambda: service.is_running)
        predicted = through(events, PREDICTED, ParseFeatures(dataset), Predict(dataset, self.pins))
        averaged = service.group_by(predicted, "sensor").process(
            BlockAverage(dataset.average_window, keep_rows=True),
            f"{PREDICTED}, average double",
            name="average",
        )
        result = f"{PREDICTED}, average double, error double"
        errors = service.group_by(averaged, "sensor").process(ErrorEstimate(), result, name="error")
        if self._broker:
            errors = through(errors, result, PublishResults(self._broker))
        return {"errors": errors.drop("average")}

    def expected(self, events: Any) -> Mapping[str, pa.Table]:
        """The same from a loop, with the models that were current for each block of messages."""
        return {"errors": expected_errors(self._stream.dataset, events, self.pins)}
