"""Arrow arrays as NumPy values and validity, and back, without copying where possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]


def storage_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """NumPy type that holds a value of a fixed-width Arrow type; None for all other types."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return np.dtype(np.int32)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return np.dtype(np.int64)
    if pa.types.is_decimal128(kind):
        return np.dtype("V16")
    if pa.types.is_fixed_size_binary(kind):
        return np.dtype(f"V{kind.byte_width}")
    return None


def flat(column: Any) -> Any:
    """A column (chunked or not) as one array."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        if column.num_chunks == 0:
            return pa.array([], column.type)
        return pa.concat_arrays(column.chunks)
    return column


def to_numpy(array: Any) -> tuple[Values, Bools | None]:
    """Values and validity (None: no nulls) of a fixed-width array; under nulls, anything."""
    dtype = storage_dtype(array.type)
    assert dtype is not None, array.type
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    if dtype == np.bool_:
        bits = array.fill_null(False) if array.null_count else array
        return bits.to_numpy(zero_copy_only=False), valid
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype), valid
    start = array.offset * dtype.itemsize
    return np.frombuffer(buffer, dtype, len(array), start), valid


def to_arrow(values: Values, valid: Bools | None, kind: pa.DataType) -> Any:
    """Fixed-width array from values and validity (None: no nulls)."""
    if valid is not None and valid.all():
        valid = None
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(kind):
        data = pa.py_buffer(np.packbits(values, bitorder="little"))
    else:
        data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [bitmap, data])


def nulls(kind: pa.DataType, length: int) -> Any:
    """An array of nulls."""
    return pa.nulls(length, kind)
