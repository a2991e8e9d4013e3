"""Lookups on the driver's side: keys as users write them, values as users know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise, repeat
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, MapType, StringType, StructField, StructType

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.columnar.aggregates import WINDOW_END, WINDOW_START
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.contract import OperatorDefinition
from anabranch.processor.key_example import key_example
from anabranch.processor.rows.definition import RowOperatorDefinition
from anabranch.processor.rows.input import row_type
from anabranch.processor.sites import PlacedBy
from anabranch.state.columnar.layout import SECTION
from anabranch.state.contract import Sections
from anabranch.state.hashing import hash_rows
from anabranch.state.rows.layout import TIMERS, KeyCodec, RowLayout
from anabranch.state.rows.nested import codec_of, make_row
from anabranch.state.rows.pieces import read_piece

_WINDOW = "window"


class Keys:
    """The key of one operator."""

    def __init__(
        self, operator: str, schema: StructType, prefix: str, placed_by: PlacedBy | None = None
    ) -> None:
        self._operator = operator
        self._fields = schema.fields
        self._placed_by = placed_by
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
            raise InvalidArgument(f"{self._wanted()}, {why}. {self._advice()}") from None
        hashed = hash_rows(columns, len(keys))
        if self._placed_by is not None:
            at = [field.name for field in self._fields].index(self._placed_by.column)
            hashed = self._placed_by.hashes(hashed, columns[at])
        hashes = pa.array(hashed)
        names = [HASH, *(field.name for field in self.codec.fields)]
        return canonical, pa.Table.from_arrays([hashes, *columns], names=names)

    def _canonical(self, key: Any) -> Any:
        items = self._items(key)
        if self._windowed:
            items = (*items[:-1], *self._ends(items[-1], key))
        try:
            return self.codec.canonical(items)
        except (PySparkException, TypeError, ValueError) as error:
            raise self._refused(key, f" ({error})") from None

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

    def _refused(self, key: Any, why: str = "") -> InvalidArgument:
        wanted = len(self.columns)
        if isinstance(key, Mapping):
            why = why or f", a dict with the names {', '.join(map(repr, key))}"
        else:
            given = len(key) if isinstance(key, (tuple, list)) else 1
            if given != wanted:
                why = f", {given} of {wanted} values"
        return InvalidArgument(f"{self._wanted()}; got {key!r}{why}. {self._advice()}")

    def _advice(self) -> str:
        fields = self._fields[:-2] if self._windowed else self._fields
        if not fields and not self._windowed:
            return "It has no key column: say get()."
        example = key_example([field.dataType for field in fields], self._windowed)
        return f"Write it as get({example}), with values of these types."

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

    def values(self, answers: Iterable[Sections]) -> Mapping[Any, Any]:
        """Values by canonical key, for keys that have one."""


class ColumnarReader:
    """Aggregates, and the state of columnar processors: a Row for each key."""

    section = SECTION

    def __init__(self, operator: str, definition: ColumnarDefinition) -> None:
        fields = [StructField(f.name, _spark_type(f.type)) for f in definition.key_schema]
        self.keys = Keys(operator, StructType(fields), "", definition.placed_by)

    def values(self, answers: Iterable[Sections]) -> Mapping[Any, Any]:
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
        self.keys = Keys(operator, definition.key_schema, "key.", definition.placed_by)
        self.section = variable
        self._layout = RowLayout(definition.key_schema, definition.variables, keyspace)
        self._variable = known = self._layout.named(variable)
        self._kind = "timers" if known is None else known.spec.kind
        self._make = None if known is None else row_type(known.spec.value_schema.names)
        user_key = None if known is None else known.user_key
        self._make_user_key: Any = tuple if user_key is None else row_type(user_key.names)

    def values(self, answers: Iterable[Sections]) -> Mapping[Any, Any]:
        found: dict[Any, Any] = {}
        for sections in answers:
            self._add(found, sections[self.section])
        return found

    def _add(self, found: dict[Any, Any], piece: pa.Table) -> None:
        """Entries of a key come one after the other, perhaps in several pieces."""
        keys, user_keys, values = read_piece(self._layout, self._variable, piece)
        if self._make is not None:
            values = list(map(tuple.__new__, repeat(self._make), values))
        if self._kind == "value":
            found.update(zip(keys, values, strict=True))
            return
        user_rows = map(tuple.__new__, repeat(self._make_user_key), user_keys)
        cuts = [at for at, (one, other) in enumerate(pairwise(keys), 1) if one != other]
        for start, end in pairwise([0, *cuts, len(keys)]):
            if self._kind == "map":
                entries = islice(zip(user_rows, values[start:end], strict=False), end - start)
                found.setdefault(keys[start], {}).update(entries)
            else:
                found.setdefault(keys[start], []).extend(values[start:end])


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
