"""What all tests share: order, one Spark session, and proof that no worker outlives them."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.processes import SESSION_MARK, workers_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDERS = (
    "unit",
    "protocol",
    "simulation",
    "contract",
    "compat",
    "integration",
    "hosts",
    "faults",
    "spark",
    "page",
    "cluster",
)
"""Cheap and telling first: a broken unit fails before a JVM starts."""

LONG = ("test_service_recovery.py",)
"""First in their folder: two minutes at the very end would be minutes of one core for nothing."""

ROOT = Path(__file__).parent
LEFTOVER_GRACE_SECONDS = 30

# A busy machine must not fail a property; the timeout of the test is the limit.
settings.register_profile(
    "anabranch", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("anabranch")


def pytest_configure() -> None:
    # Inherited by every process that tests start, also by those whose parent was killed.
    os.environ[SESSION_MARK] = uuid.uuid4().hex
    # Test classes are pickled by reference: Spark's and our workers must find `tests`.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # Hundreds of processes would compile the same modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Before any JVM starts: Spark must use this interpreter and stay on this machine.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Test JVMs live for minutes at most: the optimising compiler costs more than it saves.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: _rank(item.path))


def _rank(path: Path) -> tuple[int, bool]:
    """Place of a test file in the order; files of no folder come first."""
    parts = path.relative_to(ROOT).parts
    folder = parts[parts.index("tests") + 1]
    return FOLDERS.index(folder) if folder in FOLDERS else -1, path.name not in LONG


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local Spark for all tests."""
    from pyspark.sql import SparkSession

    from anabranch.cli.java import check_java

    check_java()
    folder = tmp_path_factory.mktemp("spark")
    state_store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.eventLog.enabled": "false",
        "spark.local.dir": folder / "local",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": state_store,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("anabranch-tests")
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    """At the very end (it was set up first), no worker that a test started may be alive."""
    yield
    deadline = time.monotonic() + LEFTOVER_GRACE_SECONDS
    while (left := workers_alive()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"Worker processes outlived the tests: {left}"
