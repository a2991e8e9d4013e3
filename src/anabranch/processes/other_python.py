"""Another Python interpreter: what it has of what a task needs, and whether that serves."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

PACKAGES = ("pyspark", "pyarrow", "anabranch")
"""What a task imports."""

SAME_VERSION = ("pyspark", "anabranch")
"""Those that talk to their like in the driver."""

ASK_SECONDS_MAX = 30.0

_QUESTION = """
import json, platform, sys
from importlib.util import find_spec
try:
    from importlib.metadata import version
except ImportError:
    version = None
found = {}
for name in sys.argv[1].split(","):
    if find_spec(name) is not None:
        try:
            found[name] = version(name)
        except Exception:
            found[name] = ""
print(json.dumps([sys.executable, platform.python_version(), found]))
"""


@dataclass(frozen=True)
class PythonReport:
    """An interpreter and its packages."""

    executable: str
    version: str
    packages: Mapping[str, str]
    """Versions of those that are there; empty where nobody knows (a source folder)."""

    @property
    def minor(self) -> str:
        """What drivers and tasks must have in common."""
        return ".".join(self.version.split(".")[:2])

    def flaws(self, mine: PythonReport) -> list[str]:
        """Why it does not serve tasks of the other one."""
        found = [f"has no {name}" for name in PACKAGES if name not in self.packages]
        if self.minor != mine.minor:
            found.insert(0, f"is Python {self.minor}, not {mine.minor}")
        for name in SAME_VERSION:
            here, there = mine.packages.get(name), self.packages.get(name)
            if here and there and here != there:
                found.append(f"has {name} {there}, not {here}")
        return found


def this_python() -> PythonReport:
    """Of this process."""
    found = {name: _version(name) for name in PACKAGES if find_spec(name) is not None}
    return PythonReport(sys.executable, platform.python_version(), found)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def ask(executable: str) -> PythonReport | None:
    """What an interpreter of this machine says; None if it cannot be run."""
    try:
        done = subprocess.run(
            [executable, "-c", _QUESTION, ",".join(PACKAGES)],
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
        )
        path, number, found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return PythonReport(path, number, found)


def is_this(executable: str) -> bool:
    """Whether a command starts the interpreter of this process (links count: they have homes)."""
    found = shutil.which(executable)
    return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)


def flaw_of(executable: str) -> str | None:
    """Why an interpreter of this machine does not serve, as part of a sentence; None: it does."""
    if is_this(executable):
        return None
    report = ask(executable)
    if report is None:
        return "cannot be run"
    return ", ".join(report.flaws(this_python())) or None


def cure() -> str:
    """What to do about it."""
    return f"Set PYSPARK_PYTHON={sys.executable} in the environment before Spark starts."
