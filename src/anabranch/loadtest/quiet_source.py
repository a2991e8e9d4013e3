"""The process that Spark starts for a source in Python: it ends with its query, in silence."""

from __future__ import annotations

import functools
import os
import sys

from anabranch.spark.plain_errors import is_spark_worker


@functools.cache
def be_quiet_at_the_end() -> None:
    """To be called in the source's process.

    When a query stops, Spark closes the socket of this process, which then prints a traceback about
    it. Errors of the source do not go this way: Spark gets them through the socket.
    """
    if is_spark_worker():
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
