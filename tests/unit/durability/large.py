"""A processor that keeps values of the sizes that its rows say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Keeper(StatefulProcessor):
    """A row's size is that of its key's new value; below zero, it takes away what there is."""

    def __init__(self, kind: str, ttl_ms: int | None = None) -> None:
        self.kind, self.ttl_ms = kind, ttl_ms

    def init(self, handle: Any) -> None:
        if self.kind == "value":
            self.kept = handle.getValueState("kept", "b binary, t string", self.ttl_ms)
        elif self.kind == "list":
            self.kept = handle.getListState("kept", "b binary, t string", self.ttl_ms)
        else:
            self.kept = handle.getMapState("kept", "u long", "b binary, t string", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.keep(row["size"])
        yield Row(k=key[0])

    def keep(self, size: int) -> None:
        if size < 0:
            self.kept.clear()
            return
        value = (bytes([size % 256]) * size, "x" * size)
        if self.kind == "value":
            self.kept.update(value)
        elif self.kind == "list":
            self.kept.appendList([value, (b"small", None)])
        else:
            self.kept.updateValue((size,), value)

    def close(self) -> None:
        pass
