"""A processor as it travels from the driver to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.model.keyspace import KeySpace
from anabranch.processor.contract import OperatorEngine
from anabranch.processor.evolution import changes
from anabranch.processor.rows.value_evolution import (
    Change,
    Removed,
    change_of,
    removed_fields,
    renewed_fields,
)
from anabranch.processor.sites import PlacedBy, described, site_changes
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
    limits: tuple[tuple[str, str], ...] = ()
    """Spark's defaults for the rows that user code gets at a time; the task has what was set."""
    removed: Removed = field(default_factory=dict)
    """Fields that state variables had before."""
    placed_by: PlacedBy | None = None

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
            **({"removed": self.removed} if self.removed else {}),
            **described(self.placed_by),
        }

    def unreadable(self, stored: Mapping[str, Any]) -> list[str]:
        asked = self.description
        same = ("kind", "key", "time_mode")
        found = changes({k: stored.get(k) for k in same}, {k: asked[k] for k in same})
        found += site_changes(stored, asked)
        if found:
            return found
        specs = {spec.name: spec for spec in self.variables}
        value_changes = self._value_changes(stored)
        for name, before in stored["variables"].items():
            if name in specs:
                what, now = f"state variable {name!r}, ", asked["variables"][name]
                found += changes({**before, "value": None}, {**now, "value": None}, what)
                found += value_changes[name].found
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

    def after(self, stored: Mapping[str, Any]) -> RowOperatorDefinition:
        removed = removed_fields(stored.get("removed", {}), self._value_changes(stored))
        variables = tuple(
            replace(spec, renewed=renewed_fields(removed.get(spec.name, {}), spec.value_schema))
            for spec in self.variables
        )
        return replace(self, variables=variables, removed=removed)

    def _value_changes(self, stored: Mapping[str, Any]) -> dict[str, Change]:
        removed = stored.get("removed", {})
        return {
            spec.name: change_of(
                f"state variable {spec.name!r}",
                stored["variables"][spec.name]["value"],
                spec.value_schema,
                removed.get(spec.name, ()),
            )
            for spec in self.variables
            if spec.name in stored["variables"]
        }

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(list(arrow_type(self.output)))

    def open(self, keyspace: KeySpace, backend: Backend = MEMORY) -> OperatorEngine:
        from anabranch.processor.rows.engine import RowEngine

        return RowEngine(self, keyspace, backend)


def _described(name: str, data_type: Any) -> dict[str, str]:
    return {"name": name, "type": data_type.simpleString()}
