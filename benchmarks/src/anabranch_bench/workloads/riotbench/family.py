"""The family behind `anabranch run riotbench`: four applications on four data sets."""

from __future__ import annotations

import argparse
import atexit
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anabranch.errors import InvalidArgument, needs_extra
from anabranch_bench.workloads.contract import Family, Workload
from anabranch_bench.workloads.riotbench.datasets import DATASETS

if TYPE_CHECKING:
    from anabranch_bench.workloads.riotbench.mqtt import Address
    from anabranch_bench.workloads.riotbench.streams import Messages

APPS = ("etl", "stats", "train", "pred")
DATASET = "city"
OWN_BROKER = "own"
RETRAIN_SECONDS = 5.0

_ONLY_FOR = {
    "broker": ("etl", "train", "pred"),
    "table": ("etl",),
    "charts": ("stats",),
    "models": ("train", "pred"),
    "range_seconds": ("train",),
    "retrain_seconds": ("pred",),
}
"""Options that not every application has."""

_LIBRARIES = ("datasketches", "paho", "rbloom", "sklearn")


class RiotbenchFamily(Family):
    """ETL, STATS, TRAIN and PRED."""

    name = "riotbench"
    description = "IoT dataflows over sensor messages: ETL, statistics, model training, prediction"
    rate = None  # each data set has its own

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Application, data set, and where results go besides the verification."""
        options = parser.add_argument_group("dataflow")
        options.add_argument("--app", choices=APPS, required=True, help="the dataflow")
        rates = ", ".join(f"{name} {dataset.load_rate:,}" for name, dataset in DATASETS.items())
        options.add_argument(
            "--dataset",
            choices=DATASETS,
            default=DATASET,
            help=f"the stream ({DATASET}); without --rate it has this many rows a second: {rates}",
        )
        options.add_argument(
            "--sensors", type=int, metavar="N", help="number of senders (as the real data set)"
        )
        options.add_argument(
            "--broker",
            metavar="HOST:PORT",
            help="etl, train, pred: publish results by MQTT; "
            f"'{OWN_BROKER}' starts a Mosquitto for this run",
        )
        options.add_argument("--table", metavar="FILE", help="etl: a SQLite file for the rows")
        options.add_argument("--charts", metavar="FOLDER", help="stats: draw charts there")
        options.add_argument(
            "--models", metavar="FOLDER", help="train, pred: where models are (a temporary folder)"
        )
        options.add_argument(
            "--range-seconds", type=float, metavar="S", help="train: length of a range"
        )
        options.add_argument(
            "--retrain-seconds",
            type=float,
            metavar="S",
            help=f"pred: time between new models ({RETRAIN_SECONDS:g}; 0: whatever --models gets)",
        )

    def from_options(self, options: argparse.Namespace) -> Workload:
        """The application on its stream."""
        check_libraries()
        if options.rate is None:
            options.rate = DATASETS[options.dataset].load_rate
        if options.range_seconds is not None and options.range_seconds <= 0:
            raise InvalidArgument("--range-seconds must be above 0.")
        retrain = RETRAIN_SECONDS if options.retrain_seconds is None else options.retrain_seconds
        if retrain < 0:
            raise InvalidArgument("--retrain-seconds must be 0 or more.")
        _check_application(options)
        from anabranch_bench.workloads.riotbench.streams import find_messages

        stream = find_messages(options.dataset, options.sensors)
        return make(
            options.app,
            stream,
            broker=_broker(options.broker) if options.broker else None,
            table=options.table,
            charts=options.charts,
            models=options.models,
            range_seconds=options.range_seconds,
            retrain_seconds=retrain,
        )

    def standard(self, rate: float) -> Sequence[Workload]:
        """Every application on every data set."""
        check_libraries()
        from anabranch_bench.workloads.riotbench.streams import find_messages

        return [make(app, find_messages(dataset)) for app in APPS for dataset in DATASETS]


def make(
    app: str,
    stream: Messages,
    *,
    broker: Address | None = None,
    table: str | None = None,
    charts: str | None = None,
    models: str | None = None,
    range_seconds: float | None = None,
    retrain_seconds: float | None = None,
) -> Workload:
    """An application on a stream; of the options it takes those that it knows."""
    # Here, so that `anabranch --help` does not import PySpark.
    from anabranch_bench.workloads.riotbench.etl import Etl
    from anabranch_bench.workloads.riotbench.pred import Prediction
    from anabranch_bench.workloads.riotbench.stats import Stats
    from anabranch_bench.workloads.riotbench.train import Training

    if app == "etl":
        return Etl(stream, broker, table)
    if app == "stats":
        return Stats(stream, charts)
    if app == "train":
        return Training(stream, models, broker, range_seconds)
    if app == "pred":
        return Prediction(stream, models, broker, retrain_seconds)
    raise InvalidArgument(f"There is no application '{app}'. Known: {', '.join(APPS)}.")


def check_libraries(instead: str = "") -> None:
    """Raise if what only this family needs is not installed; `instead` is another way out."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise needs_extra(
            f"RIoTBench needs {', '.join(missing)}", "riotbench", instead, "./benchmarks"
        )


def _check_application(options: argparse.Namespace) -> None:
    """An option that the application does not have would be ignored without a word."""
    for option, apps in _ONLY_FOR.items():
        if getattr(options, option) is not None and options.app not in apps:
            raise InvalidArgument(
                f"--{option.replace('_', '-')} is for --app {' or '.join(apps)}; {options.app} "
                "does not have it. Leave it out."
            )


def _broker(text: str) -> Address:
    from anabranch_bench.workloads.riotbench.mqtt import Address, Broker

    if text != OWN_BROKER:
        return Address.parse(text)
    broker = Broker()
    atexit.register(broker.stop)
    return broker.address
