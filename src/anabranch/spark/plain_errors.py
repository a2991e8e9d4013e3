"""Our errors on their way through Spark: what to do comes first, not the frames of this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.errors import AnabranchError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Spark's own switch: its Python worker looks at it when it reports an error, and ends."""


@contextmanager
def plain_errors(tell: Callable[[AnabranchError], None] = lambda _: None) -> Iterator[None]:
    """An error of ours leaves Spark's Python worker as its message alone.

    Our messages carry the traceback of user code where there is any. Other errors are bugs, and
    keep their frames.
    """
    try:
        yield
    except AnabranchError as error:
        tell(error)
        if is_spark_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise error from None


def is_spark_worker() -> bool:
    """Whether this process was started by Spark to run Python."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
