"""Run PySpark's own tests of `transformWithState` under `service.enable()`.

For whoever has them: they are in Spark's sources, not in the package `pyspark`. pytest does not run
this. Say where the folder `python` of a checkout of the same release is:

    python tests/compat/run_pyspark_tests.py SPARK/python [-k PART_OF_A_NAME] [--on-spark] [--v2]

docs/migrating.md has what the last run said.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PACKAGE = "pyspark.sql.tests.pandas"
HELPER = f"{PACKAGE}.helper.helper_pandas_transform_with_state"
MODULES = (
    "test_transform_with_state",
    "test_transform_with_state_state_variable",
    "test_pandas_transform_with_state",
    "test_pandas_transform_with_state_state_variable",
)

V2 = tuple(f"{name}_checkpoint_v2" for name in MODULES)
"""The same tests with version 2 of the format of Spark's own checkpoints, which nothing here reads:
with --v2 only."""

LANES = 5
"""As many as the tests have shuffle partitions: some take the first row of what is in no order."""

_METADATA = "looks at state with Spark's sources state-metadata and statestore"
_INITIAL = "reads its initial state out of Spark's checkpoint with the source statestore"
EXCLUDED = {
    "test_transform_with_map_state_metadata": _METADATA,
    "test_transform_with_map_state_metadata_with_init_state": _METADATA,
    "test_transform_with_list_state_metadata": _METADATA,
    "test_transform_with_value_state_metadata": _METADATA,
    "test_transform_with_state_restart_with_multiple_rows_init_state": _INITIAL,
}
"""Tests that read Spark's own state files, which do not exist here, and why."""

EXCLUDED_WITH_VARIABLES = {
    "test_transform_with_state_with_timers_single_partition": f"runs one that {_INITIAL}",
}
"""The same, of the modules for state variables only: elsewhere tests of this name are others."""


def reason(module: str, name: str) -> str | None:
    """Why a test is left out."""
    more = EXCLUDED_WITH_VARIABLES if "state_variable" in module else {}
    return {**EXCLUDED, **more}.get(name)


def with_tests_of(folder: Path) -> Any:
    """Make the tests importable, and their processors usable in other processes."""
    if not (folder / "pyspark" / "sql" / "tests").is_dir():
        raise SystemExit(
            f"{folder} has no pyspark/sql/tests. Give the folder python of a checkout."
        )
    import pyspark.sql
    from pyspark import cloudpickle

    pyspark.sql.__path__.append(str(folder / "pyspark" / "sql"))
    helper = importlib.import_module(HELPER)
    cloudpickle.register_pickle_by_value(helper)
    return helper


def cases(modules: Sequence[str], on_spark: bool) -> Iterator[type[unittest.TestCase]]:
    """Their test cases, each with a service of its own."""
    for name in modules:
        try:
            module = importlib.import_module(f"{PACKAGE}.streaming.{name}")
        except ModuleNotFoundError as error:
            sys.stderr.write(f"not there: {error.name}\n")
            continue
        for case in list(vars(module).values()):
            is_case = isinstance(case, type) and issubclass(case, unittest.TestCase)
            if is_case and case.__module__ == module.__name__ and hasattr(case, "use_pandas"):
                yield case if on_spark else enabled(case)


def enabled(case: Any) -> type[unittest.TestCase]:
    """A test case whose session has a service that is enabled."""

    class Enabled(case):  # type: ignore[misc]
        @classmethod
        def setUpClass(cls) -> None:
            from anabranch import StateService

            super().setUpClass()
            cls._folder = tempfile.TemporaryDirectory()
            cls._service = StateService(
                cls.spark, f"{cls._folder.name}/state", workers=2, lanes=LANES, fsync=False
            )
            cls._service.enable()

        @classmethod
        def tearDownClass(cls) -> None:
            for query in cls.spark.streams.active:
                query.stop()
            cls._service.stop()
            cls._folder.cleanup()
            super().tearDownClass()

    Enabled.__name__ = Enabled.__qualname__ = case.__name__
    Enabled.__module__ = case.__module__
    return Enabled


def suite(modules: Sequence[str], part: str, on_spark: bool) -> tuple[unittest.TestSuite, int]:
    """All that are not left out, and how many are."""
    found, left_out = unittest.TestSuite(), 0
    loader = unittest.TestLoader()
    for case in cases(modules, on_spark):
        chosen = unittest.TestSuite()  # of its own, so that it is set up once
        names = loader.getTestCaseNames(case)
        for name in (name for name in names if part in f"{case.__name__}.{name}"):
            why = None if on_spark else reason(case.__module__, name)
            if why is not None:
                left_out += 1
                sys.stderr.write(f"left out: {case.__name__}.{name}: it {why}\n")
            else:
                chosen.addTest(case(name))
        found.addTest(chosen)
    return found, left_out


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder python of a checkout of Spark")
    parser.add_argument("-k", default="", metavar="PART", help="only tests with this in their name")
    parser.add_argument("--on-spark", action="store_true", help="without the service, to compare")
    parser.add_argument("--v2", action="store_true", help="the modules *_checkpoint_v2 instead")
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with_tests_of(args.folder.resolve())
    chosen, left_out = suite(V2 if args.v2 else MODULES, args.k, args.on_spark)
    result = unittest.TextTestRunner(verbosity=2).run(chosen)
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    passed, all_of_them = result.testsRun - bad - skipped, result.testsRun + left_out
    sys.stdout.write(
        f"{passed} of {all_of_them} pass, {bad} fail, Spark skips {skipped}, {left_out} left out\n"
    )
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
