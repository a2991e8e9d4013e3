"""`spark.read.format("anabranch")` and `format("anabranch-metadata")`: state as a DataFrame."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.errors import InvalidArgument
from anabranch.spark.plain_errors import plain_errors
from anabranch.spark.state_metadata import METADATA_SCHEMA, metadata_rows
from anabranch.spark.state_reader import StateReader, StateSelection

STATE_FORMAT = "anabranch"
METADATA_FORMAT = "anabranch-metadata"

_OPTIONS = (
    "operatorName",
    "stateVarName",
    "batchId",
    "readRegisteredTimers",
    "flattenCollectionTypes",
    "ignoreWaitingRows",
    "numPartitions",
)
_ADVICE = {
    "operatorid": "Operators have names here: use operatorName.",
    "storename": "Operators have one store here: use stateVarName to choose a state variable.",
    "joinside": "There are no joins among Anabranch's operators.",
    "snapshotstartbatchid": "Every batch that is kept can be read directly: use batchId.",
    "snapshotpartitionid": "Every batch that is kept can be read directly: use batchId.",
    "readchangefeed": "Read two batches with batchId and compare them.",
    "changestartbatchid": "Read two batches with batchId and compare them.",
    "changeendbatchid": "Read two batches with batchId and compare them.",
}
"""Options of Spark's own source that have no meaning here, in lower case."""

_registered: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Make the formats "anabranch" and "anabranch-metadata" known to a session.

    A `StateService` does it by itself.

    Examples
    --------
    >>> anabranch.register(spark)                                             # doctest: +SKIP
    >>> spark.read.format("anabranch").load("state/orders").show()            # doctest: +SKIP
    """
    if spark in _registered:
        return
    use_same_python(spark)
    for source in (StateSource, MetadataSource):
        spark.dataSource.register(source)
    _registered.add(spark)


def use_same_python(spark: SparkSession) -> None:
    """Tasks need this package: on one machine, let Spark use the driver's interpreter."""
    context = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen and str(context.master).startswith("local"):
        context.pythonExec = sys.executable


class StateSource(DataSource):
    """Keys, values and timers of one state variable of one operator, as of one batch."""

    @classmethod
    def name(cls) -> str:
        return STATE_FORMAT

    @plain_errors()
    def schema(self) -> StructType:
        return self._open().schema

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        opened = self._open()
        if schema != opened.schema:
            raise InvalidArgument(
                f"Stored state has its own schema, {opened.schema.simpleString()}. Leave out "
                "schema(...) and select what you need."
            )
        return _PartitionReader(opened, _number(self.options, "numPartitions", 1))

    def _open(self) -> StateReader:
        options = self.options
        return StateReader(
            _location(options, _OPTIONS),
            StateSelection(
                operator=options.get("operatorName"),
                variable=options.get("stateVarName"),
                epoch=_number(options, "batchId", 0),
                timers=_flag(options, "readRegisteredTimers", False),
                flatten=_flag(options, "flattenCollectionTypes", True),
                ignore_waiting=_flag(options, "ignoreWaitingRows", False),
            ),
        )


class MetadataSource(DataSource):
    """What a location holds: operators, state variables, schemas, batches, sizes."""

    @classmethod
    def name(cls) -> str:
        return METADATA_FORMAT

    @plain_errors()
    def schema(self) -> StructType:
        _location(self.options, ())
        return METADATA_SCHEMA

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        return _MetadataReader(_location(self.options, ()))


class _TaskGroups(InputPartition):
    """Key groups that one task reads."""

    def __init__(self, groups: tuple[int, ...]) -> None:
        super().__init__(groups)
        self.groups = groups


class _PartitionReader(DataSourceReader):
    """One task for some key groups."""

    def __init__(self, reader: StateReader, number: int | None) -> None:
        self._reader = reader
        self._number = number

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        return [_TaskGroups(groups) for groups in self._reader.partitions(self._number)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _TaskGroups)
        with plain_errors():
            for table in self._reader.read(partition.groups):
                yield from table.to_batches(max_chunksize=10_000)


class _MetadataReader(DataSourceReader):
    """One task: manifests are small."""

    def __init__(self, location: str) -> None:
        self._location = location

    @plain_errors()
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(metadata_rows(self._location))


def _location(options: Mapping[str, str], known: tuple[str, ...]) -> str:
    """The location that `load` was given, after a look at the other options."""
    allowed = {name.lower() for name in (*known, "path")}
    for name in options:
        if name.lower() not in allowed:
            advice = _ADVICE.get(name.lower(), "")
            raise InvalidArgument(
                f"Option {name} is not known. {advice + ' ' if advice else ''}Options: "
                f"{', '.join(known) or 'none'}."
            )
    location = options.get("path")
    if not location:
        raise InvalidArgument("Say which state location to read: load('state/orders').")
    return location


def _number(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise InvalidArgument(
            f"Option {name} must be a whole number of at least {least}, got {text!r}."
        )
    return number


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidArgument(f"Option {name} must be true or false, got {text!r}.")
    return text.lower() == "true"
