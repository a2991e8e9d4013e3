"""A Spark session that is fair to both sides."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.loadtest.interrupts import clean_interrupts
from anabranch.state.scratch import Scratch

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


@contextmanager
def spark_session(cores: int = 2, memory: str = "4g") -> Iterator[tuple[SparkSession, Path]]:
    """A local session and a scratch folder; both are gone afterwards, whatever ends the process."""
    with closing(Scratch()) as scratch:
        spark = new_session(scratch.path, cores, memory)
        with clean_interrupts():
            try:
                yield spark, scratch.path
            finally:
                spark.stop()


def new_session(
    folder: Path,
    cores: int = 2,
    memory: str = "4g",
    more: Mapping[str, str] | None = None,
    master: str | None = None,
) -> SparkSession:
    """A session whose files are in a folder; `more` has settings beside the usual ones.

    Without a master's address it is a local one.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master or f"local[{cores}]")
        .appName("anabranch")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", f"{folder}/local")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.session.timeZone", "UTC")
        # On a machine with much to do, a Python process takes longer than 15 s to start.
        .config("spark.python.authenticate.socketTimeout", "120s")
        # Where Hadoop's native library is missing, Spark's usual manager starts processes for each
        # file of a checkpoint in a folder: a third of a short batch, for both sides.
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        # Spark's own operators at their best: RocksDB with changelog checkpointing.
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    )
    for name, value in (more or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
