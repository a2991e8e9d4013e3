"""A Spark driver that a test plays with: it obeys orders on standard input.

An order is a line of JSON: {"id", "function": "module:name", "args", "kwargs"}. The driver calls
the function with its `Stage`, in a thread of its own, and answers {"id", "result"} or {"id",
"error"}. Events come in between: {"event", "at", ...}. It ends with its input, in order.

usage: driver_program.py MASTER_URL ADDRESS FOLDER SETTINGS
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTOR_MEMORY = "512m"
"""Less, and an executor that reads a state store fails."""

FOR_LOST_HOSTS = {
    # No task waits for a host on which its input is: all of it comes from the driver.
    "spark.locality.wait": "0",
    # A task that reads another host's part of a shuffle when that host is cut off notices after
    # the first of these, or after the third if it connects; it does not try again.
    "spark.shuffle.io.connectionTimeout": "8s",
    "spark.shuffle.io.maxRetries": "0",
    "spark.shuffle.io.connectionCreationTimeout": "3s",
}
"""What docs/cluster.md asks for, so that batches go on soon."""


@dataclass
class Stage:
    """What functions find, and where they leave things for each other."""

    spark: SparkSession
    folder: Path
    address: str
    closing: ExitStack
    service: Any = None
    queries: dict[str, Any] = field(default_factory=dict)
    handles: list[Any] = field(default_factory=list)

    @staticmethod
    def tell(event: str, **facts: Any) -> None:
        """Tell the test that something has happened."""
        _say({"event": event, "at": time.time(), **facts})


_saying = threading.Lock()
_out = os.fdopen(os.dup(1), "w", encoding="utf-8")
"""Standard output; what others print goes to the log."""


def _say(document: dict[str, Any]) -> None:
    with _saying:
        _out.write(json.dumps(document) + "\n")
        _out.flush()


def main() -> None:
    """Start Spark, then obey until the input ends."""
    os.dup2(2, 1)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    url, address, folder, settings = sys.argv[1:]
    with ExitStack() as closing:
        spark = _session(url, address, Path(folder), json.loads(settings))
        closing.callback(spark.stop)
        stage = Stage(spark, Path(folder), address, closing)
        stage.tell("ready", application=spark.sparkContext.applicationId)
        for line in sys.stdin:
            order = json.loads(line)
            threading.Thread(target=_obey, args=(stage, order), daemon=True).start()


def _session(url: str, address: str, folder: Path, settings: dict[str, str]) -> SparkSession:
    from anabranch.loadtest.session import new_session

    own = {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **FOR_LOST_HOSTS,
        **settings,
    }
    return new_session(folder, memory="512m", more=own, master=url)


def _obey(stage: Stage, order: dict[str, Any]) -> None:
    try:
        module, name = order["function"].split(":")
        function = getattr(importlib.import_module(module), name)
        result = function(stage, *order["args"], **order["kwargs"])
        _say({"id": order["id"], "result": result})
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        _say({"id": order["id"], "error": text, "trace": traceback.format_exc()})


if __name__ == "__main__":
    main()
