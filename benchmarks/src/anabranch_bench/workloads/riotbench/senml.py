"""SenML messages: built from columns, parsed into columns, both for many messages at once.

A message is a JSON object with a base time `bt` in milliseconds and entries `e`, each with name
`n`, unit `u` and a number as text `v` or a text `sv`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.datasets import TIMESTAMP, Dataset
from anabranch_bench.workloads.riotbench.draws import Floats, Ints

META_SEPARATOR = ","

_ENTRIES = pa.list_(pa.struct([(name, pa.string()) for name in ("n", "u", "v", "sv")]))


def build_senml(dataset: Dataset, at_ms: Ints, columns: Mapping[str, Any]) -> Any:
    """One text for each row. `columns` are texts; those without a unit are annotations."""
    parts: list[Any] = []
    before = '{"e":['
    for name, texts in columns.items():
        kind = "v" if name in dataset.columns and name not in dataset.text_columns else "sv"
        unit = dataset.columns.get(name, "string")
        parts += [f'{before}{{"u":"{unit}","n":"{name}","{kind}":"', texts]
        before = '"},'
    quote = '"' if dataset.base_time_is_text else ""
    parts += [f'"}}],"bt":{quote}', pa.array(at_ms).cast(pa.string()), f"{quote}}}"]
    return pc.binary_join_element_wise(*parts, "")


@dataclass(frozen=True)
class Parsed:
    """Columns of some messages."""

    at_ms: Ints
    sensor: Any
    meta: Any
    """All columns that are not observed, in the order of the data set, as one text."""
    values: Floats
    """A row for each message, a column for each observed field; NaN where there is none."""


def parse_senml(dataset: Dataset, messages: Any) -> Parsed:
    """Columns of messages of a data set. Raises InvalidArgument for what is not SenML."""
    table = _read(messages)
    try:
        at_ms = table.column("bt").cast(pa.int64()).to_numpy()
        # The reader leaves out what no message of a batch has.
        entries = _flat(table.column("e")).cast(_ENTRIES)
    except (pa.ArrowException, KeyError) as error:
        raise _not_senml(messages, error) from error
    owner = pc.list_parent_indices(entries).to_numpy()
    cells = entries.flatten()
    names, numbers, texts = (cells.field(cells.type.get_field_index(n)) for n in ("n", "v", "sv"))
    numbers = pc.coalesce(numbers, texts)

    def place(wanted: tuple[str, ...]) -> tuple[Any, Any]:
        found = pc.index_in(names, pa.array(wanted))
        at = pc.is_valid(found).to_numpy(zero_copy_only=False)
        slots = np.full((table.num_rows, len(wanted)), -1)
        slots[owner[at], found.filter(pa.array(at)).to_numpy()] = np.flatnonzero(at)
        return slots, pa.array(slots.T.reshape(-1), mask=(slots.T < 0).reshape(-1))

    _, cells_of = place(dataset.observed)
    try:
        flat = numbers.take(cells_of).cast(pa.float64())
    except pa.ArrowException as error:
        raise _not_senml(messages, error) from error
    values = pc.fill_null(flat, float("nan")).to_numpy(zero_copy_only=False)
    slots, meta_cells = place(dataset.meta)
    if (slots[:, dataset.meta.index(dataset.id_field)] < 0).any():
        raise _not_senml(messages, f"no '{dataset.id_field}'")
    found = pc.fill_null(numbers.take(meta_cells), "")
    if pc.any(pc.match_substring_regex(found, '[,"\\\\]')).as_py():
        raise _not_senml(messages, "a text with a comma, quote or backslash, which CSV cannot hold")
    metas = [found.slice(i * table.num_rows, table.num_rows) for i in range(len(dataset.meta))]
    return Parsed(
        at_ms,
        metas[dataset.meta.index(dataset.id_field)],
        pc.binary_join_element_wise(*metas, META_SEPARATOR),
        values.reshape(len(dataset.observed), table.num_rows).T,
    )


def _read(messages: Any) -> Any:
    lines = "\n".join(messages.to_pylist()).encode()
    options = pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        table = pa_json.read_json(io.BytesIO(lines), read_options=options)
    except pa.ArrowException as error:
        raise _not_senml(messages, error) from error
    if table.num_rows != len(messages):
        raise _not_senml(messages, "empty messages")
    return table


def _flat(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _not_senml(messages: Any, why: object) -> InvalidArgument:
    start = messages[0].as_py()[:80] if len(messages) else ""
    return InvalidArgument(
        f"Not SenML: {why}. Messages look like {start!r}... Send JSON objects with a base time "
        '"bt" and entries "e" of {"n": name, "u": unit, "v" or "sv": value}.'
    )


def split_row(rows: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Columns of CSV rows."""
    cells = pc.split_pattern(rows, META_SEPARATOR)
    return {name: pc.list_element(cells, i) for i, name in enumerate(names)}


def csv_to_senml(dataset: Dataset, rows: Any, names: tuple[str, ...]) -> Any:
    """CSV rows, with their column names, back as messages. Annotations may be empty."""
    columns = split_row(rows, names)
    at_ms = columns.pop(TIMESTAMP).cast(pa.int64()).to_numpy()
    return build_senml(dataset, at_ms, columns)
