"""Hosts that are addresses of the loopback interface: no root, no network that fails."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch_bench.testbed import leash
from anabranch_bench.testbed.hosts import Host

MARK = "TESTBED_HOST"
"""Environment variable that every process of a host inherits; not one that agents get from the
driver."""


class LoopbackHost(Host):
    """Processes that belong together because they inherit a mark."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        super().__init__(name, address, folder)
        self._mark = f"{name}-{uuid.uuid4().hex}"
        self._pipe, self._end_of_pipe = os.pipe()

    @property
    def known_as(self) -> str:
        """No name is known on all machines for 127.0.0.2."""
        return self.address

    def _held(self, words: Sequence[str]) -> tuple[list[str], Sequence[int], Mapping[str, str]]:
        leashed = [sys.executable, "-I", leash.__file__, str(self._pipe), *words]
        return leashed, (self._pipe,), {MARK: self._mark}

    def lives_here(self, pid: int) -> bool:
        """Whether it has inherited the mark."""
        mark = f"{MARK}={self._mark}".encode()
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return mark in file.read().split(b"\0")
        except OSError:
            return False

    def _end(self) -> None:
        os.close(self._end_of_pipe)
        os.close(self._pipe)
        self.kill()
