"""Where workers keep state that is not in memory."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from anabranch.state.scratch import Scratch


def local_folder(
    spark: SparkSession, backend: str, wanted: str | None, is_here: bool
) -> str | None:
    """The folder that was asked for, or Spark's own; looked at where it will be needed.

    Workers on this machine can only tell a batch that they cannot write there. Those on other
    hosts have folders there, which their agents look at (`processes/state_folder.py`).
    """
    if not is_here:
        return None
    folders = os.environ.get("SPARK_LOCAL_DIRS") or spark.conf.get("spark.local.dir", "")
    folder = wanted or (folders or "").split(",")[0] or None
    if backend == "rocksdb":
        Scratch(folder).close()
    return folder
