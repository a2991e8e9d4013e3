"""The public interface of columnar operators: rows and state columns in, both out again.

A processor sees many keys at once. This one remembers the highest `reading` of each `sensor` and
tells when it rises:

    class Highest(ColumnarProcessor):
        state_schema = pa.schema([pa.field("highest", pa.float64())])

        def process(self, batch: KeyedBatch) -> Update:
            seen = batch.reduce(np.maximum, "reading")
            before = batch.state.column("highest").to_numpy()  # NaN for new keys
            rises = ~(seen <= before)
            output = batch.keys.append_column("highest", pa.array(seen)).filter(pa.array(rises))
            highest = np.where(rises, seen, before)
            return Update(
                state=pa.table({"highest": highest}),
                write=rises,
                output=output,
                output_keys=np.flatnonzero(rises),
            )
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.processor.contract import BatchTimes
from anabranch.state.columnar.grouping import Segments
from anabranch.state.columnar.values import Bools, flat, to_numpy

__all__ = ["ColumnarProcessor", "KeyedBatch", "Segments", "Update"]


@dataclass(frozen=True)
class KeyedBatch:
    """Rows of a batch with the keys that they touch and the state of these keys."""

    num_keys: int
    key_columns: Sequence[Any]
    """One array for each key column, one value a key; `keys` is the same as a table."""
    key_schema: pa.Schema
    is_new: Bools
    """Keys that have no state."""
    state: pa.Table
    """State columns, one row a key; null for new keys."""
    rows: pa.Table
    """Input columns of all rows, key columns included."""
    segments: Segments
    """Which rows belong to which key: rows in `segments.order`, cut at `segments.starts`."""
    times: BatchTimes
    combined: bool = False
    """The rows are not input rows but what `combine` made of them."""

    @property
    def keys(self) -> pa.Table:
        """Key columns, one row a key (empty if there are no key columns)."""
        return pa.Table.from_arrays(list(self.key_columns), schema=self.key_schema)

    def key_of_row(self) -> npt.NDArray[np.intp]:
        """For each row the number of its key."""
        return self.segments.key_of_row()

    def reduce(self, ufunc: np.ufunc, column: str) -> npt.NDArray[Any]:
        """One value a key: a NumPy function (np.add, np.maximum, ...) over the rows of the key.

        For fixed-width columns without nulls.
        """
        values, valid = to_numpy(flat(self.rows.column(column)))
        if valid is not None:
            raise ValueError(f"column {column} has nulls; fill or filter them first")
        reduced: npt.NDArray[Any] = ufunc.reduceat(
            values[self.segments.order], self.segments.starts
        )
        return reduced


@dataclass(frozen=True)
class Update:
    """What a processor wants to change and say."""

    state: pa.Table | None = None
    """New state columns, one row a key of the batch; None: no change."""
    write: Bools | None = None
    """Keys whose state is to be stored; None: all. Fewer keys make a smaller changelog."""
    drop: Bools | None = None
    """Keys whose state is to be removed (stronger than `write`)."""
    output: pa.Table | None = None
    """Rows for downstream."""
    output_keys: npt.NDArray[np.intp] | None = None
    """For each output row the number of its key; None: one row for every key, in order."""


class ColumnarProcessor(ABC):
    """A stateful operator over whole batches. Made in the driver and pickled to the workers.

    All rows of a key in a micro-batch come in one call of `process`, except that large batches of
    a processor with `combine` are combined in pieces first. Calls may come from several threads for
    different keys: keep nothing in `self` that `process` changes.
    """

    expiry: str | None = None
    """Timestamp column of the key or the state: `expire` is called when the watermark is there."""

    combined_schema: pa.Schema | None = None
    """Columns that `combine` returns; None if there is no `combine`."""

    @property
    @abstractmethod
    def state_schema(self) -> pa.Schema:
        """Names and types of the state columns."""

    @abstractmethod
    def process(self, batch: KeyedBatch) -> Update:
        """Rows of a micro-batch and the state of their keys."""

    def expire(self, batch: KeyedBatch) -> Update:
        """Keys whose expiry has been reached; there are no rows. Drops them unless overridden."""
        return Update(drop=np.ones(batch.num_keys, bool))

    def combine(self, batch: KeyedBatch) -> tuple[pa.Table, npt.NDArray[np.intp] | None]:
        """Shrink rows (there is no state here): fewer rows with the columns of `combined_schema`.

        With the number of each row's key; None: one row for every key, in order.
        """
        raise NotImplementedError

    def idle_rows(self) -> pa.Table | None:
        """Without key columns: what counts as a row in a batch that has none. None: nothing."""
        return None

    def show(self, state: pa.Table) -> pa.Table:
        """What a lookup gives for state columns, one row a key; the state unless overridden."""
        return state

    def refused_columns(self, added: Collection[str]) -> list[str]:
        """Why state columns cannot be added to state that is stored without them, in words.

        Entries stored before have null there: columns must be nullable unless overridden.
        """
        return [
            f"the added state column {name!r} must be nullable, since entries stored before have "
            "none"
            for name in added
            if not self.state_schema.field(name).nullable
        ]

    def describe(self) -> dict[str, Any]:
        """JSON-able: what must not change between runs, besides key and state columns."""
        kind = type(self)
        return {"processor": f"{kind.__module__}.{kind.__qualname__}"}
