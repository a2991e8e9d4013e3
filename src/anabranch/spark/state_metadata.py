"""What a state location holds: a row for each state variable of each operator."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.durability.blobs import Location
from anabranch.durability.store import OperatorFile, StateStore
from anabranch.spark.state_shapes import shapes_of
from anabranch.state.rows.layout import TIMERS

_COLUMNS: dict[str, DataType] = {
    "operatorName": StringType(),
    "operatorType": StringType(),
    "queryId": StringType(),
    "timeMode": StringType(),
    "stateVarName": StringType(),
    "stateVarType": StringType(),
    "ttl": BooleanType(),
    "schema": StringType(),
    "keyGroups": IntegerType(),
    "minBatchId": LongType(),
    "maxBatchId": LongType(),
    "batchIds": ArrayType(LongType()),
    "files": IntegerType(),
    "snapshotBytes": LongType(),
    "changelogBytes": LongType(),
    "committedAt": TimestampType(),
}
METADATA_SCHEMA = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])


def metadata_rows(location: Location) -> list[tuple[Any, ...]]:
    """The rows, in the order of METADATA_SCHEMA; sizes are those of the last batch's files."""
    store = StateStore(location, fsync=False).look()
    rows: list[tuple[Any, ...]] = []
    for name in store.operators():
        record = store.operator(name)
        sizes = _sizes(store, name)
        description = record.description
        for variable, shape in shapes_of(description, record.keyspace).items():
            if variable == TIMERS and description["time_mode"] == "none":
                continue
            row = {
                **sizes,
                **_about(record),
                "stateVarName": None if variable == TIMERS else variable,
                "stateVarType": shape.kind,
                "ttl": shape.ttl,
                "schema": shape.schema.simpleString(),
            }
            rows.append(tuple(row[column] for column in _COLUMNS))
    return rows


def _about(record: OperatorFile) -> Mapping[str, Any]:
    description = record.description
    kind = description["kind"]
    return {
        "operatorName": record.name,
        "operatorType": "transformWithState" if kind == "transform_with_state" else kind,
        "queryId": record.query_id,
        "timeMode": description.get("time_mode"),
        "keyGroups": record.keyspace.groups,
    }


def _sizes(store: StateStore, operator: str) -> Mapping[str, Any]:
    epochs = store.epochs(operator)
    if not epochs:
        empty: dict[str, Any] = dict.fromkeys(_COLUMNS)
        return {**empty, "batchIds": [], "files": 0, "snapshotBytes": 0, "changelogBytes": 0}
    manifest = store.manifest(operator, epochs[-1])
    committed = datetime.datetime.fromtimestamp(manifest.committed_at / 1000, datetime.timezone.utc)
    return {
        "minBatchId": epochs[0],
        "maxBatchId": epochs[-1],
        "batchIds": epochs,
        "files": len(manifest.files),
        "snapshotBytes": sum(ref.bytes for ref in manifest.snapshots),
        "changelogBytes": sum(ref.bytes for ref in manifest.changelogs),
        "committedAt": committed,
    }
