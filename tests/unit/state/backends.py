"""The backend that a test runs on: each test of state runs once on every one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.state.backend import MEMORY, Backend
from anabranch.state.rocksdb.backend import RocksBackend

KINDS = ("memory", "rocksdb")

_in_use: Backend = MEMORY


def in_use() -> Backend:
    """For engines that a test makes."""
    return _in_use


def make(kind: str, folder: Path) -> Backend:
    """A backend of one of KINDS."""
    if kind == "memory":
        return MEMORY
    # Little memory for working sets: some are kept from one transaction to the next, some are not.
    return RocksBackend(64 << 20, str(folder), working_bytes_max=4 << 10)


@pytest.fixture(scope="session", params=KINDS)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """One database for all tests: key groups have namespaces of their own in it."""
    made = make(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def on_every_backend(backend: Backend) -> Iterator[None]:
    """Run on the backend."""
    global _in_use
    _in_use = backend
    yield
    _in_use = MEMORY
