"""How the state of one operator is laid out: its key, its variables, and their Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.types import Row, StructType

from anabranch.model.keyspace import HASH, OP, KeySpace
from anabranch.state.large_values import is_viewable, large_in
from anabranch.state.rows.codec import FloatCodec, SignedFloatCodec, length_mismatch
from anabranch.state.rows.nested import codec_of, make_row

TIMERS = "$timers"
"""Section of the timers; no state variable can have this name."""

EXPIRY = "expiry_ms"
POSITION = "position"

HASH_AT = 0
TIMERS_AT = 1
FIRST_SLOT = 2
"""A record is a list: the key's hash, its timers (sorted tuple or None), a slot per variable."""

Record = list[Any]
Kind = Literal["value", "list", "map"]


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """One state variable as the processor's `init` asked for it."""

    name: str
    kind: Kind
    value_schema: StructType
    user_key_schema: StructType | None = None
    ttl_ms: int | None = None
    renewed: tuple[tuple[str, int], ...] = ()
    """Fields of the value that had been removed before, and how often."""


class TupleCodec:
    """State values: tuples with one item per column of a schema."""

    def __init__(
        self, schema: StructType, prefix: str, renewed: Sequence[tuple[str, int]] = ()
    ) -> None:
        self._codecs = [codec_of(field.dataType) for field in schema.fields]
        # A field that has come back is another column: nobody reads what the old one had.
        marks = {name: f"~{times}" for name, times in renewed}
        self.fields = [
            pa.field(prefix + field.name + marks.get(field.name, ""), codec.arrow_type)
            for field, codec in zip(schema.fields, self._codecs, strict=True)
        ]
        self._bulky = [at for at, f in enumerate(self.fields) if is_viewable(f.type)]
        self.exact: set[tuple[type, ...]] = set()
        """Tuples of Python types that need no conversion; filled as they are met."""

    def accept(self, value: Any) -> tuple[Any, ...]:
        """What `get` returns after `value` was stored; the way for all but the types in `exact`."""
        items = tuple(map(_unboxed, value))
        if len(items) != len(self._codecs):
            raise length_mismatch(len(self._codecs), len(items))
        if type(value) is tuple and all(
            item is None or type(item) in codec.identity
            for codec, item in zip(self._codecs, value, strict=True)
        ):
            self.exact.add(tuple(map(type, value)))
            return value
        return tuple(
            None if item is None else codec.normalise(item)
            for codec, item in zip(self._codecs, items, strict=True)
        )

    def split(self, values: Sequence[tuple[Any, ...] | None]) -> list[list[Any]]:
        """The items of each column; None where there is no value."""
        places = range(len(self._codecs))
        try:
            return [list(map(itemgetter(at), values)) for at in places]  # type: ignore[arg-type]
        except TypeError:  # some are None
            return [[None if value is None else value[at] for value in values] for at in places]

    def write(self, values: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Arrow arrays of the columns of values."""
        return self.write_columns(self.split(values))

    def write_columns(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Arrow arrays of columns."""
        return [codec.write(column) for codec, column in zip(self._codecs, columns, strict=True)]

    @property
    def is_bulky(self) -> bool:
        """Whether there is text, or bytes."""
        return bool(self._bulky)

    def large(self, columns: Sequence[Sequence[Any]]) -> list[int]:
        """Places of values that are large, and written best one by one."""
        found = [large_in(columns[at]) for at in self._bulky]
        return sorted({place for places in found for place in places})

    def bytes_of(self, value: tuple[Any, ...]) -> int:
        """Bytes of text and of bytes in a value, about."""
        return sum(len(value[at]) for at in self._bulky if value[at] is not None)

    def read(self, columns: Sequence[Any], length: int) -> list[tuple[Any, ...]]:
        lists = [codec.read(column) for codec, column in zip(self._codecs, columns, strict=True)]
        return list(zip(*lists, strict=True)) if lists else [()] * length


def _unboxed(value: Any) -> Any:
    """NumPy and pandas scalars as Python values, as PySpark does before it stores state."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    if type(value) in (list, tuple):
        return type(value)(map(_unboxed, value))
    if type(value) is dict:
        return {_unboxed(key): _unboxed(item) for key, item in value.items()}
    return value


class KeyCodec:
    """Keys: hashable canonical forms with Spark's equality of keys.

    The canonical form of a one-column key is the column's; otherwise a tuple.
    """

    def __init__(
        self, schema: StructType, prefix: str, floats: type[FloatCodec] = FloatCodec
    ) -> None:
        self.schema = schema
        self.names = list(schema.names)
        self.columns = [codec_of(field.dataType, floats) for field in schema.fields]
        self._single = len(self.columns) == 1
        self.plain = all(codec.plain for codec in self.columns)
        self.fields = [
            pa.field(prefix + field.name, codec.arrow_type)
            for field, codec in zip(schema.fields, self.columns, strict=True)
        ]

    def read(self, columns: Sequence[Any], length: int) -> list[Any]:
        """Canonical keys of Arrow columns."""
        lists = [
            codec.read_canonical(column)
            for codec, column in zip(self.columns, columns, strict=True)
        ]
        if self._single:
            return lists[0]
        return list(zip(*lists, strict=True)) if lists else [()] * length

    def read_items(self, columns: Sequence[Any], length: int) -> list[tuple[Any, ...]]:
        """The keys of Arrow columns as `items` gives them."""
        lists = [codec.read(column) for codec, column in zip(self.columns, columns, strict=True)]
        return list(zip(*lists, strict=True)) if lists else [()] * length

    def write(self, keys: Sequence[Any]) -> list[Any]:
        """Arrow arrays of the columns of canonical keys."""
        if self._single:
            return [self.columns[0].write_canonical(keys)]
        return [
            codec.write_canonical([key[at] for key in keys])
            for at, codec in enumerate(self.columns)
        ]

    def external(self, key: Any) -> Row:
        """The key as Spark's state server shows it: a Row."""
        return make_row(self.names, self.items(key))

    def items(self, key: Any) -> tuple[Any, ...]:
        """The key as a plain tuple of external values."""
        canonical = (key,) if self._single else key
        if self.plain:
            return tuple(canonical)
        return tuple(
            None if item is None else codec.external(item)
            for codec, item in zip(self.columns, canonical, strict=True)
        )

    def canonical(self, value: Any) -> Any:
        """Canonical form of a key that user code gives as a tuple (a map state's key)."""
        items = tuple(map(_unboxed, value))
        if len(items) != len(self.columns):
            raise length_mismatch(len(self.columns), len(items))
        forms = [
            None if item is None else codec.canonical(codec.normalise(item))
            for codec, item in zip(self.columns, items, strict=True)
        ]
        return forms[0] if self._single else tuple(forms)


class Variable:
    """A state variable with its codecs and its slot in a record."""

    def __init__(self, spec: VariableSpec, slot: int) -> None:
        self.spec = spec
        self.slot = slot
        self.value = TupleCodec(spec.value_schema, "value.", spec.renewed)
        self.user_key = (
            KeyCodec(spec.user_key_schema, "user_key.", SignedFloatCodec)
            if spec.user_key_schema
            else None
        )


class RowLayout:
    """The state of one operator; shared by all its key groups in a worker."""

    def __init__(
        self,
        key_schema: StructType,
        specs: Sequence[VariableSpec],
        keyspace: KeySpace,
        deleted: frozenset[str] = frozenset(),
        has_timers: bool = True,
    ) -> None:
        self.key = KeyCodec(key_schema, "key.")
        self.keyspace = keyspace
        self.has_timers = has_timers
        self.deleted = deleted
        """Variables of earlier runs that the processor dropped with `deleteIfExists`."""
        self.variables = [
            Variable(spec, FIRST_SLOT + position) for position, spec in enumerate(specs)
        ]
        self.maps = tuple(v.slot for v in self.variables if v.spec.kind == "map")
        self.expiring = tuple(v for v in self.variables if v.spec.ttl_ms is not None)
        self.blank: Record = [None] * (FIRST_SLOT + len(specs))

    def named(self, section: str) -> Variable | None:
        """The variable with a section; None: it is that of the timers."""
        return next((v for v in self.variables if v.spec.name == section), None)

    def schema_of(self, variable: Variable | None, *, changelog: bool) -> Any:
        """Arrow schema of a variable's section, or of the timers'."""
        fields = [pa.field(HASH, pa.int64())]
        if changelog:
            fields.append(pa.field(OP, pa.uint8()))
        fields += self.key.fields
        if variable is None:
            return pa.schema([*fields, pa.field(EXPIRY, pa.int64())])
        if variable.user_key is not None:
            fields += variable.user_key.fields
        if variable.spec.kind == "list":
            fields.append(pa.field(POSITION, pa.int32()))
        fields += variable.value.fields
        if variable.spec.ttl_ms is not None:
            fields.append(pa.field(EXPIRY, pa.int64()))
        return pa.schema(fields)
