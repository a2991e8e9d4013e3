"""A processor as it travels from the driver to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.model.keyspace import KeySpace
from anabranch.processor.contract import OperatorEngine
from anabranch.processor.evolution import (
    Field,
    changes,
    lost_fields,
    needed_fields,
    struct_fields,
)
from anabranch.state.arrow_types import arrow_type
from anabranch.state.backend import MEMORY, Backend
from anabranch.state.rows.layout import VariableSpec


@dataclass(frozen=True, slots=True)
class RowInput:
    """Columns of a row chunk after the hash: what user code sees, and where the key is."""

    names: tuple[str, ...]
    """Columns that user code sees; they come first, computed key columns follow."""
    key_at: tuple[int, ...]
    event_time_at: int | None = None
    """Column with the watermark, if late rows are to be dropped."""


@dataclass(frozen=True, slots=True)
class RowOperatorDefinition:
    """`OperatorDefinition` of a `StatefulProcessor`."""

    processor: bytes
    """Pickled with PySpark's cloudpickle."""
    processor_name: str
    key_schema: StructType
    rows: RowInput
    initial: RowInput | None
    output: StructType
    time_mode: str
    """"none", "processingtime" or "eventtime"."""
    variables: tuple[VariableSpec, ...]
    deleted: frozenset[str]
    use_pandas: bool = False
    timezone: str = "UTC"
    """Session time zone, for pandas timestamps."""
    settings: tuple[tuple[str, bool], ...] = ()
    """Session settings of pandas conversions."""

    @property
    def description(self) -> Mapping[str, Any]:
        return {
            "kind": "transform_with_state",
            "key": [_described(field.name, field.dataType) for field in self.key_schema.fields],
            "time_mode": self.time_mode,
            "variables": {
                spec.name: {
                    "kind": spec.kind,
                    "value": spec.value_schema.simpleString(),
                    "user_key": spec.user_key_schema and spec.user_key_schema.simpleString(),
                    "ttl": spec.ttl_ms is not None,
                }
                for spec in sorted(self.variables, key=lambda spec: spec.name)
            },
            "deleted": sorted(self.deleted),
        }

    def unreadable(self, stored: Mapping[str, Any]) -> list[str]:
        asked = self.description
        same = ("kind", "key", "time_mode")
        found = changes({k: stored.get(k) for k in same}, {k: asked[k] for k in same})
        if found:
            return found
        specs = {spec.name: spec for spec in self.variables}
        for name, before in stored["variables"].items():
            if name in specs:
                found += _changed(before, asked["variables"][name], specs[name])
            elif name not in self.deleted:
                found.append(
                    f"state variable {name!r} was removed (to drop its state, call "
                    f"handle.deleteIfExists({name!r}) in init)"
                )
        for name in stored["deleted"]:
            if name in specs:
                found.append(f"state variable {name!r} was deleted before: use another name")
            elif name not in self.deleted:
                found.append(f"handle.deleteIfExists({name!r}) must stay in init")
        return found

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(list(arrow_type(self.output)))

    def open(self, keyspace: KeySpace, backend: Backend = MEMORY) -> OperatorEngine:
        from anabranch.processor.rows.engine import RowEngine

        return RowEngine(self, keyspace, backend)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any], spec: VariableSpec) -> list[str]:
    what = f"state variable {spec.name!r}"
    found = changes({**before, "value": None}, {**now, "value": None}, f"{what}, ")
    stored = struct_fields(before["value"])
    fields = [
        Field(field.name, field.dataType.simpleString(), field.nullable)
        for field in spec.value_schema.fields
    ]
    return [*found, *lost_fields(what, stored, fields), *needed_fields(what, stored, fields)]


def _described(name: str, data_type: Any) -> dict[str, str]:
    return {"name": name, "type": data_type.simpleString()}
