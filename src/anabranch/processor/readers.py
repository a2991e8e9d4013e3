"""Lookups on the driver's side: keys as users write them, values as users know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, MapType, StringType, StructField, StructType

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.columnar.aggregates import WINDOW_END, WINDOW_START
from anabranch.processor.columnar.engine import ColumnarDefinition
from anabranch.processor.contract import OperatorDefinition
from anabranch.processor.rows.definition import RowOperatorDefinition
from anabranch.state.columnar.layout import SECTION
from anabranch.state.contract import Sections
from anabranch.state.hashing import hash_rows
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import TIMERS, TIMERS_AT, KeyCodec, Record, RowLayout, Variable
from anabranch.state.rows.nested import codec_of, make_row

_WINDOW = "window"


class Keys:
    """The key of one operator."""

    def __init__(self, operator: str, schema: StructType, prefix: str) -> None:
        self._operator = operator
        self._fields = schema.fields
        for field in schema.fields:
            _check_key(operator, field)
        self.codec = KeyCodec(schema, prefix)
        names = [field.name for field in schema.fields]
        self._windowed = names[-2:] == [WINDOW_START, WINDOW_END]
        """The window's two ends are columns here and one column to the user, as in outputs."""
        self.columns = [*names[:-2], _WINDOW] if self._windowed else names

    def table(self, keys: Sequence[Any]) -> tuple[list[Any], pa.Table]:
        """Canonical keys, and HASH with the key columns."""
        canonical = [self._canonical(key) for key in keys]
        try:
            columns = self.codec.write(canonical)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            why = f"which one of the keys does not fit: {error}"
            raise InvalidArgument(f"{self._wanted()}, {why}.") from error
        hashes = pa.array(hash_rows(columns, len(keys)))
        names = [HASH, *(field.name for field in self.codec.fields)]
        return canonical, pa.Table.from_arrays([hashes, *columns], names=names)

    def _canonical(self, key: Any) -> Any:
        items = self._items(key)
        if self._windowed:
            items = (*items[:-1], *self._ends(items[-1], key))
        try:
            return self.codec.canonical(items)
        except (PySparkException, TypeError, ValueError) as error:
            raise self._refused(key) from error

    def _items(self, key: Any) -> tuple[Any, ...]:
        if isinstance(key, Mapping):
            if set(key) != set(self.columns):
                raise self._refused(key)
            return tuple(key[column] for column in self.columns)
        if len(self.columns) == 1:
            is_value = self._windowed or isinstance(self._fields[0].dataType, StructType)
            is_tuple = isinstance(key, tuple) and len(key) == 1 and not is_value
            return tuple(key) if is_tuple else (key,)
        if not isinstance(key, (tuple, list)) or len(key) != len(self.columns):
            raise self._refused(key)
        return tuple(key)

    def _ends(self, window: Any, key: Any) -> tuple[Any, Any]:
        if isinstance(window, Mapping) and set(window) == {"start", "end"}:
            return window["start"], window["end"]
        if not isinstance(window, (tuple, list)) or len(window) != 2:
            raise self._refused(key)
        return window[0], window[1]

    def _refused(self, key: Any) -> InvalidArgument:
        return InvalidArgument(f"{self._wanted()}; got {key!r}.")

    def _wanted(self) -> str:
        fields = self._fields[:-2] if self._windowed else self._fields
        parts = [f"{field.name} {field.dataType.simpleString()}" for field in fields]
        if self._windowed:
            parts.append(f"{_WINDOW} (start timestamp, end timestamp)")
        return f"A key of operator '{self._operator}' is ({', '.join(parts)})"


class Reader(Protocol):
    """How the answers of one operator, or of one of its state variables, are read."""

    keys: Keys
    section: str
    """The section that it needs."""

    def values(self, answers: Sequence[Sections]) -> Mapping[Any, Any]:
        """Values by canonical key, for keys that have one."""


class ColumnarReader:
    """Aggregates, and the state of columnar processors: a Row for each key."""

    section = SECTION

    def __init__(self, operator: str, definition: ColumnarDefinition) -> None:
        fields = [StructField(f.name, _spark_type(f.type)) for f in definition.key_schema]
        self.keys = Keys(operator, StructType(fields), "")

    def values(self, answers: Sequence[Sections]) -> Mapping[Any, Any]:
        found: dict[Any, Any] = {}
        width = len(self.keys.codec.fields)
        for sections in answers:
            table = sections[SECTION].combine_chunks()
            columns = [_array(column) for column in table.columns]
            keys = self.keys.codec.read(columns[:width], table.num_rows)
            names = table.column_names[width:]
            values = [codec_of(_spark_type(c.type)).read(c) for c in columns[width:]]
            rows = zip(*values, strict=True) if values else [()] * len(keys)
            found.update(zip(keys, (make_row(names, row) for row in rows), strict=True))
        return found


class RowReader:
    """A state variable of a processor, as its own `get` and `iterator` give it, with names."""

    def __init__(
        self, operator: str, definition: RowOperatorDefinition, keyspace: KeySpace, variable: str
    ) -> None:
        self.keys = Keys(operator, definition.key_schema, "key.")
        self.section = variable
        self._layout = RowLayout(definition.key_schema, definition.variables, keyspace)
        named = {v.spec.name: v for v in self._layout.variables}
        self._variable: Variable | None = named.get(variable)

    def values(self, answers: Sequence[Sections]) -> Mapping[Any, Any]:
        group = RowGroupState(self._layout)
        for sections in answers:
            group.install(sections)
        found = {key: self._value(record) for key, record in group.records.items()}
        return {key: value for key, value in found.items() if value is not None}

    def _value(self, record: Record) -> Any:
        variable = self._variable
        if variable is None:
            return None if record[TIMERS_AT] is None else list(record[TIMERS_AT])
        cell, spec = record[variable.slot], variable.spec
        if cell is None:
            return None
        names = spec.value_schema.names

        def row(entry: Any) -> Any:
            return make_row(names, entry if spec.ttl_ms is None else entry[0])

        if spec.kind == "value":
            return row(cell)
        if spec.kind == "list":
            return [row(element) for element in cell]
        assert variable.user_key is not None
        return {variable.user_key.external(key): row(entry) for key, entry in cell.items()}


def reader_of(
    operator: str, definition: OperatorDefinition, variable: str | None, keyspace: KeySpace
) -> Reader:
    """How to look an operator's state up; raises if there is no such variable."""
    if isinstance(definition, ColumnarDefinition):
        if variable is not None:
            raise InvalidArgument(
                f"Operator '{operator}' has no state variables: say state({operator!r})."
            )
        return ColumnarReader(operator, definition)
    if isinstance(definition, RowOperatorDefinition):
        names = [spec.name for spec in definition.variables]
        if definition.time_mode != "none":
            names.append(TIMERS)
        if variable is None and len(names) == 1:
            variable = names[0]
        if variable is None or variable not in names:
            asked = (
                "Name a state variable of" if variable is None else f"{variable!r} is not one of"
            )
            raise InvalidArgument(
                f"{asked} operator '{operator}': state({operator!r}, name), where name is one of "
                f"{', '.join(map(repr, names))}."
            )
        return RowReader(operator, definition, keyspace, variable)
    raise InvalidArgument(f"The state of operator '{operator}' cannot be looked up.")


def _check_key(operator: str, field: StructField) -> None:
    if _has(field.dataType, MapType):
        raise InvalidArgument(
            f"Operator '{operator}' has the key column {field.name} with a map in it; its state "
            "cannot be looked up by key."
        )
    if isinstance(field.dataType, StringType) and field.dataType.collation not in (
        "UTF8_BINARY",
        None,
    ):
        raise InvalidArgument(
            f"Operator '{operator}' has the key column {field.name} with the collation "
            f"{field.dataType.collation}; its state cannot be looked up by key."
        )


def _has(kind: DataType, wanted: type[DataType]) -> bool:
    inner = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    if isinstance(kind, StructType):
        inner += [field.dataType for field in kind.fields]
    return isinstance(kind, wanted) or any(_has(k, wanted) for k in inner if k is not None)


def _spark_type(kind: pa.DataType) -> DataType:
    found: DataType = from_arrow_type(kind, prefer_timestamp_ntz=True)
    return found


def _array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
