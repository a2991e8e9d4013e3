"""What tests of this folder have measured: a line of JSON for each, in the file that RUNS names."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

RUNS = "ANABRANCH_CLUSTER_RUNS"
"""Environment variable: where lines are added; without it nothing is kept."""


class Record:
    """Of the test that runs."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._started = 0.0

    def begin(self) -> None:
        """Another test."""
        self._facts, self._started = {}, time.time()

    def note(self, **facts: Any) -> None:
        """Keep what has been measured."""
        self._facts.update(facts)

    def add(self, name: str, value: Any) -> None:
        """Keep one more of several."""
        self._facts.setdefault(name, []).append(value)

    def end(self, file: str, test: str, outcome: str) -> None:
        """Write the line."""
        if not (path := os.environ.get(RUNS)):
            return
        line = {
            "file": file,
            "test": test,
            "outcome": outcome,
            "began": round(self._started, 1),
            "seconds": round(time.time() - self._started, 1),
            "load": round(os.getloadavg()[1], 1),
            **self._facts,
        }
        with Path(path).open("a") as runs:
            runs.write(json.dumps(line) + "\n")


RECORD = Record()
