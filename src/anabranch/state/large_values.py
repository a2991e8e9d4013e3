"""Large text and bytes on their way to files and peers: looked at where they are, never copied.

A value of LARGE_BYTES and more is an Arrow array of its own over the memory of the Python object.
As part of a longer array it would be copied when that is made, when it is ordered and when a page
is made of it: three times the state of a transaction whose values are large.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

LARGE_BYTES = 256 << 10
"""A copy of less costs no more than what it takes to do without."""

_VIEWED = (pa.string(), pa.binary())

_utf8 = ctypes.pythonapi.PyUnicode_AsUTF8AndSize
_utf8.restype = ctypes.c_void_p
_utf8.argtypes = (ctypes.py_object, ctypes.POINTER(ctypes.c_ssize_t))


def is_viewable(kind: Any) -> bool:
    """Whether large values of an Arrow type can do without a copy."""
    return kind in _VIEWED


def large_in(values: Sequence[str | bytes | None]) -> list[int]:
    """Places of the large ones; nearly always none, so that looking costs next to nothing."""
    try:
        most = max(map(len, values), default=0)  # type: ignore[arg-type]
    except TypeError:  # some are None
        most = max((len(value) for value in values if value is not None), default=0)
    if most < LARGE_BYTES:
        return []
    return [at for at, value in enumerate(values) if value is not None and _is_large(value)]


def view_of(values: Sequence[Any], kind: Any) -> Any:
    """The array of a single large value, without a copy; None: these are other values."""
    if len(values) != 1 or values[0] is None or not _is_large(values[0]):
        return None
    content = _content_of(values[0])
    if content.size > 2**31 - 1:
        return None  # Arrow says that it is too long
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(kind, 1, [None, ends, content])


def _is_large(value: str | bytes) -> bool:
    return len(value) >= LARGE_BYTES


def _content_of(value: str | bytes) -> Any:
    if isinstance(value, bytes):
        return pa.py_buffer(value)
    if value.isascii():
        size = ctypes.c_ssize_t()
        address = _utf8(value, ctypes.byref(size))
        return pa.foreign_buffer(address, size.value, base=value)
    # Python would keep what it makes of other text with the text for ever: this goes again.
    return pa.py_buffer(value.encode())
