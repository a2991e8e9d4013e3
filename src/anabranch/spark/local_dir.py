"""Where workers keep state that is not in memory."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from anabranch.state.scratch import Scratch


def local_folder(spark: SparkSession, backend: str, wanted: str | None) -> str | None:
    """The folder that was asked for, or Spark's own; looked at where it will be needed.

    Workers are on this machine, and can only tell a batch that they cannot write there.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS") or spark.conf.get("spark.local.dir", "")
    folder = wanted or (folders or "").split(",")[0] or None
    if backend == "rocksdb":
        Scratch(folder).close()
    return folder
