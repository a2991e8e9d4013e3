"""A key as users would write it in Python, by the types of its columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_MOMENT = "datetime(2026, 1, 31, 12, 0)"
_EXAMPLES: tuple[tuple[type[DataType], str], ...] = (
    (StringType, "'a'"),
    (IntegralType, "42"),
    (DecimalType, "Decimal('1.5')"),
    (FractionalType, "1.5"),
    (BooleanType, "True"),
    (BinaryType, "b'a'"),
    (DateType, "date(2026, 1, 31)"),
    (TimestampType, _MOMENT),
    (TimestampNTZType, _MOMENT),
)


def key_example(types: Sequence[DataType], windowed: bool) -> str:
    """The key of such columns, with a window as its last part or not."""
    parts = [_value(kind) for kind in types]
    if windowed:
        parts.append("(start, end)")
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _value(kind: DataType) -> str:
    if isinstance(kind, StructType):
        inner = ", ".join(_value(field.dataType) for field in kind.fields)
        return f"({inner}{',' if len(kind.fields) == 1 else ''})"
    return next((text for known, text in _EXAMPLES if isinstance(kind, known)), "...")
