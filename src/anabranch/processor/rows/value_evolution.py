"""How the schema of a state variable may change: as far as Spark allows it for Avro encoding.

Fields may move, go, come (if they can be null) and become wider, at any depth. What Spark allows
because Avro cannot tell the types apart is refused: it would change values without a word (an int
read as a date, a long as a timestamp, an int as a byte, bytes as text).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as T

from anabranch.processor.evolution import cut, parts_of, struct_fields

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
WIDER: Mapping[str, frozenset[str]] = {
    **{kind: frozenset(_NUMBERS[at + 1 :]) for at, kind in enumerate(_NUMBERS)},
    "string": frozenset(("binary",)),
}
"""What a type may become. Long to float or double may round, as in Spark."""

NOT_POSSIBLE = "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION] Schema evolution is not possible"
"""Spark's words, for whoever looks for them."""

INSIDE_LIST, INSIDE_MAP = "[]", "{}"
"""In the path of a field: in the elements of a list, in the values of a map."""


@dataclass
class Change:
    """From what is stored to what a processor defines now."""

    found: list[str] = field(default_factory=list)
    """Why it is not possible."""
    removed: list[str] = field(default_factory=list)
    """Paths of the fields that are gone."""


def change_of(what: str, stored: str, now: T.DataType, gone: Collection[str] = ()) -> Change:
    """Compare a stored type, in Spark's short notation, with a type.

    `gone` are paths of fields that were removed before: some stored values still have them. Those
    inside of others cannot come back; the others are new columns then.
    """
    change = Change()
    _compare(change, what, "", stored, now, frozenset(gone))
    return change


def _compare(
    change: Change, what: str, path: str, stored: str, now: T.DataType, gone: Collection[str]
) -> None:
    short = now.simpleString()
    if isinstance(now, T.StructType) and stored.startswith("struct<"):
        _compare_fields(change, what, path, struct_fields(stored), now.fields, gone)
    elif stored == short or stored == "void" or short in WIDER.get(stored, ()):
        return
    elif isinstance(now, T.ArrayType) and stored.startswith("array<"):
        (element,) = _inside(stored)
        _compare(change, what, path + INSIDE_LIST, element, now.elementType, gone)
    elif isinstance(now, T.MapType) and stored.startswith("map<"):
        key, value = _inside(stored)
        if key != now.keyType.simpleString():
            change.found.append(
                f"{what}: the keys of {_shown(path)} were {cut(key)}, now they are "
                f"{cut(now.keyType.simpleString())}; the type of keys must stay"
            )
        _compare(change, what, path + INSIDE_MAP, value, now.valueType, gone)
    else:
        change.found.append(
            f"{what}: {_shown(path)} was {cut(stored)}, now it is {cut(short)}, which cannot hold "
            f"every stored value as it is ({NOT_POSSIBLE})"
        )


def _compare_fields(
    change: Change,
    what: str,
    path: str,
    stored: Mapping[str, str],
    fields: Sequence[T.StructField],
    gone: Collection[str],
) -> None:
    names = {each.name for each in fields}
    for each in fields:
        inner = f"{path}.{each.name}" if path else each.name
        if each.name in stored:
            _compare(change, what, inner, stored[each.name], each.dataType, gone)
        elif path and inner in gone:
            change.found.append(
                f"{what}: {_shown(inner)} was removed before, and some stored values still have "
                "what it was then: use another name"
            )
        elif not each.nullable:
            change.found.append(
                f"{what}: the added {_shown(inner)} must be nullable, since values stored before "
                "have none"
            )
    change.removed += [f"{path}.{name}" if path else name for name in stored if name not in names]


Removed = Mapping[str, Mapping[str, int]]
"""How often fields of variables were removed, by path."""


def removed_fields(before: Removed, changes: Mapping[str, Change]) -> dict[str, dict[str, int]]:
    """Those removed before, and those that are removed now."""
    found = {name: dict(paths) for name, paths in before.items()}
    for name, change in changes.items():
        for path in change.removed:
            paths = found.setdefault(name, {})
            paths[path] = paths.get(path, 0) + 1
    return found


def renewed_fields(removed: Mapping[str, int], now: T.StructType) -> tuple[tuple[str, int], ...]:
    """Fields of a value that were removed before."""
    return tuple((name, removed[name]) for name in now.names if name in removed)


def _inside(text: str) -> Iterator[str]:
    return parts_of(text[text.index("<") + 1 : -1])


def _shown(path: str) -> str:
    return f"field {path!r}" if path else "its value"
