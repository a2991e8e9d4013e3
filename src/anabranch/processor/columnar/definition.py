"""A columnar operator as it travels from the driver to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.model.keyspace import KeySpace
from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.contract import OperatorEngine
from anabranch.processor.evolution import Field, changes, lost_fields
from anabranch.processor.sites import PLACED_BY, PlacedBy, described, site_changes
from anabranch.state.backend import MEMORY, Backend


@dataclass(frozen=True)
class ColumnarDefinition:
    """A columnar operator as sent to the workers; see `OperatorDefinition`."""

    processor: ColumnarProcessor
    key_schema: pa.Schema
    input_schema: pa.Schema
    """Without HASH; contains the key columns."""
    output_schema: pa.Schema
    late: str | None = None
    """Timestamp column of the input: rows at or before the late watermark in it are dropped."""
    placed_by: PlacedBy | None = None

    @property
    def description(self) -> Mapping[str, Any]:
        """Key and state columns with their types, and what the processor says of itself."""
        return {
            "kind": "columnar",
            "keys": [[f.name, str(f.type)] for f in self.key_schema],
            "state": [[f.name, str(f.type)] for f in self.processor.state_schema],
            **self.processor.describe(),
            **described(self.placed_by),
        }

    def unreadable(self, stored: Mapping[str, Any]) -> list[str]:
        """All but state columns must be the same; the processor says which may be added."""
        asked = self.description
        apart = {"state": None, PLACED_BY: None}
        found = changes({**stored, **apart}, {**asked, **apart}) + site_changes(stored, asked)
        if found:
            return found
        before = dict(stored["state"])
        schema = self.processor.state_schema
        fields = [Field(f.name, str(f.type), f.nullable) for f in schema]
        added = [field.name for field in fields if field.name not in before]
        return [*lost_fields("state", before, fields), *self.processor.refused_columns(added)]

    def after(self, stored: Mapping[str, Any]) -> ColumnarDefinition:
        """Columns are only ever added: nothing has to be remembered."""
        return self

    def open(self, keyspace: KeySpace, backend: Backend = MEMORY) -> OperatorEngine:
        """Make the engine."""
        from anabranch.processor.columnar.engine import ColumnarEngine

        return ColumnarEngine(self, keyspace, backend)
