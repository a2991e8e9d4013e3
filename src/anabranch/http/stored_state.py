"""Lookups in committed state where no worker answers: the key group of a key is read as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.spark.state_reader import StateReader, StateSelection
from anabranch.spark.state_shapes import KEY, KEY_GROUP


class StoredState:
    """One state variable of an operator, as far as lookups of single keys go."""

    def __init__(
        self, blobs: BlobStore, operator: str, variable: str | None, owners: Sequence[str]
    ) -> None:
        self._reader = StateReader(blobs.address, StateSelection(operator, variable, flatten=False))
        self._owners = owners

    def read(self, keys: Iterable[Any]) -> tuple[int, list[Any]]:
        """The epoch and the values of keys."""
        return self._reader.epoch, [self._value(key) for key in keys]

    def locate(self, key: Any = ()) -> tuple[int | None, str | None]:
        """The key group of a key, if the key has state, and who owned it last."""
        row = next(self._rows(key), None)
        if row is None:
            return None, None
        group = int(row[KEY_GROUP])
        return group, self._owners[group] if group < len(self._owners) else None

    def _value(self, key: Any) -> Any:
        row = next(self._rows(key), None)
        if row is None:
            return None
        value = {name: each for name, each in row.items() if name not in (KEY, KEY_GROUP)}
        return value["value"] if list(value) == ["value"] else value

    def _rows(self, key: Any) -> Iterator[dict[str, Any]]:
        wanted = _comparable(key)
        for groups in self._reader.partitions():
            for table in self._reader.read(groups):
                if KEY not in table.column_names:  # all rows have the same key: none
                    yield from table.to_pylist()
                    continue
                for at, found in enumerate(table.column(KEY).to_pylist()):
                    if _comparable(list(found.values())) == wanted:
                        yield table.slice(at, 1).to_pylist()[0]


def _comparable(key: Any) -> str:
    """Keys as JSON has them: a column alone is a value, several are a list."""
    parts = list(key.values()) if isinstance(key, dict) else key
    parts = list(parts) if isinstance(parts, tuple | list) else [parts]
    return json.dumps(parts, default=str)
