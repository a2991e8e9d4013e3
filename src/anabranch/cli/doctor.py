"""`anabranch doctor`: can this machine run Anabranch, and if not, what fixes it."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import re
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.extras import EXTRAS
from anabranch.cli.java import JavaNotReady, check_java
from anabranch.processes.other_python import cure, flaw_of

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers

LIBRARIES = ("pyspark", "pyarrow", "pandas", "numpy")

MEMORY_GIB_MIN = 2.0
"""One driver JVM and two workers fit; less makes the JVM thrash or be killed."""

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing looked at: what was found, whether it serves, and what to do if not."""

    name: str
    value: str
    ok: bool
    advice: str = ""
    is_missing: bool = False
    """Not here, which is well unless somebody wants it."""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine",
        description="Checks that Python, Java and the libraries here can run Anabranch, and which "
        "extras are installed. Exit code 0 if all is well, 1 if something must be fixed.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look at everything, print it, say by the exit code whether all is well."""
    findings = examine()
    healthy = all(finding.ok for finding in findings)
    if args.json:
        listed = {finding.name: _without_name(finding) for finding in findings}
        print(json.dumps({"ok": healthy, "findings": listed}, indent=2))
    else:
        print(_as_text(findings, healthy))
    return 0 if healthy else 1


def examine() -> list[DoctorFinding]:
    """All findings, in the order in which one would fix them."""
    about = metadata("anabranch")
    required = [line for line in about.get_all("Requires-Dist", []) if "extra ==" not in line]
    ranges = dict(map(_name_and_range, required))
    return [
        _python(about["Requires-Python"]),
        *(_library(name, ranges[name]) for name in LIBRARIES),
        _tasks_python(),
        _java(),
        DoctorFinding("cores", str(_cores()), True),
        _memory(),
        *map(_extra, EXTRAS),
    ]


def _name_and_range(requirement: str) -> tuple[str, str]:
    """`pandas<3,>=2.2` as ("pandas", "<3,>=2.2")."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return name, requirement[len(name) :]


def in_range(version: str, wanted: str) -> bool:
    """Whether a version satisfies a range of `<`, `<=`, `>`, `>=` parts."""
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    found = _numbers(version)
    return all(
        compare[sign](found, _numbers(bound))
        for sign, bound in re.findall(r"([<>]=?)\s*([\d.]+)", wanted)
    )


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]*\d", version)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    return tuple(numbers + [0] * (3 - len(numbers)))


def _python(wanted: str) -> DoctorFinding:
    version = platform.python_version()
    ok = in_range(version, wanted)
    advice = "" if ok else f"Use a Python {wanted}."
    return DoctorFinding("python", f"{version} ({sys.executable})", ok, advice)


def _library(name: str, wanted: str) -> DoctorFinding:
    """A library that can be imported and whose version is in the supported range."""
    advice = f'{sys.executable} -m pip install "{name}{wanted}"'
    try:
        version = str(import_module(name).__version__)
        if name == "pyarrow":
            # Some builds of Arrow come without Flight, which carries the rows.
            import_module("pyarrow.flight")
    except ImportError as error:
        return DoctorFinding(name, f"cannot be imported: {error}", False, advice)
    ok = in_range(version, wanted)
    return DoctorFinding(name, version, ok, "" if ok else advice)


_UNSEEN = (
    "The setting spark.pyspark.python goes first, and doctor does not see it: StateService checks "
    "what Spark's tasks really run."
)


def _tasks_python() -> DoctorFinding:
    """The interpreter of Spark's tasks, as far as the environment says."""
    command = os.environ.get("PYSPARK_PYTHON")
    if not command:
        advice = (
            "Local sessions use this Python then. On a cluster, set PYSPARK_PYTHON to one with "
            "these packages on every host, before Spark starts. " + _UNSEEN
        )
        return DoctorFinding("tasks", "PYSPARK_PYTHON is not set", True, advice, is_missing=True)
    flaw = flaw_of(command)
    if flaw is not None:
        return DoctorFinding("tasks", f"PYSPARK_PYTHON={command} {flaw}", False, cure())
    return DoctorFinding("tasks", command, True, _UNSEEN)


def _extra(name: str) -> DoctorFinding:
    """An extra that is not installed is no fault."""
    extra = EXTRAS[name]
    if not extra.missing():
        return DoctorFinding(f"[{name}]", "installed", True)
    install = extra.install or f"pip install '.[{name}]'"
    advice = f"{install} in a clone, for: {extra.purpose}"
    return DoctorFinding(f"[{name}]", "not installed", True, advice, is_missing=True)


def _java() -> DoctorFinding:
    try:
        java = check_java()
    except JavaNotReady as error:
        return DoctorFinding("java", "not ready", False, str(error))
    return DoctorFinding("java", f"{java.version} ({java.executable})", True)


def _cores() -> int:
    # In a container or under taskset, fewer than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> DoctorFinding:
    gib = _memory_bytes() / 2**30
    ok = gib >= MEMORY_GIB_MIN
    advice = "" if ok else f"Give it at least {MEMORY_GIB_MIN:.0f} GiB of memory."
    return DoctorFinding("memory", f"{gib:.1f} GiB", ok, advice)


def _memory_bytes() -> int:
    """Physical memory, or the container's limit if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [limit for path in CGROUP_LIMITS if (limit := _cgroup_limit(path)) is not None]
    return min([physical, *limits])


def _cgroup_limit(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        # No such cgroup, or no limit in it ("max").
        return None


def _without_name(finding: DoctorFinding) -> dict[str, object]:
    fields = asdict(finding)
    del fields["name"]
    return fields


def _as_text(findings: list[DoctorFinding], healthy: bool) -> str:
    lines = []
    for finding in findings:
        mark = "NO" if not finding.ok else "--" if finding.is_missing else "ok"
        lines.append(f"{mark}  {finding.name:11} {finding.value}")
        lines += [f"      {line}" for line in finding.advice.splitlines()]
    lines += ["", "All is well." if healthy else "Something must be fixed: see NO above."]
    return "\n".join(lines)
