"""Arrow columns as NumPy arrays and back, for columnar operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.chance import Longs

Places = npt.NDArray[np.intp]

TIME = pa.timestamp("us", "UTC")


def flat(column: Any) -> Any:
    """A column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def longs(column: Any, missing: int = 0) -> Longs:
    """Whole numbers, or timestamps as microseconds; `missing` where there is none."""
    column = flat(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return np.asarray(pc.fill_null(column, missing).to_numpy(zero_copy_only=False))


def flags(column: Any) -> npt.NDArray[np.bool_]:
    """Truth values, in an array of its own; False where there is none."""
    return np.array(pc.fill_null(flat(column), False).to_numpy(zero_copy_only=False))


def times(micros: Longs) -> Any:
    """Timestamps from microseconds."""
    return pa.array(micros).view(TIME)


def owners(lists: Any) -> Places:
    """For each element of a column of lists, the number of its list."""
    return np.asarray(pc.list_parent_indices(flat(lists)).to_numpy(), np.intp)


def elements(lists: Any) -> Any:
    """The elements of a column of lists, one list after the other."""
    return pc.list_flatten(flat(lists))


def grouped(of: Places, values: Any, count: int) -> Any:
    """Lists of values by owner, in order; `values` is an Arrow array."""
    order = np.argsort(of, kind="stable")
    sizes = np.bincount(of, minlength=count)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(order)))
