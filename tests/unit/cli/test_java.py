"""Finding Java as Spark does, and what is said when it cannot serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli import java
from anabranch.cli.java import (
    Java,
    JavaNotReady,
    check_java,
    debian_package,
    install_commands,
    parse_version,
)

PROBES_WITH_MODULE = 'case "$*" in *--add-modules*)'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', ("17.0.15", 17)),
        ('openjdk version "21" 2023-09-19', ("21", 21)),
        ('openjdk version "25-ea" 2025-09-16', ("25-ea", 25)),
        ('java version "1.8.0_392"', ("1.8.0_392", 8)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.2"', ("17.0.2", 17)),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_is_read_from_what_java_prints(text: str, expected: tuple[str, int] | None) -> None:
    assert parse_version(text) == expected


def fake_java(folder: Path, script: str) -> Path:
    """An executable bin/java in the folder."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return executable


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\"' >&2"


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen = fake_java(tmp_path / "home", says("21.0.1"))
    other = fake_java(tmp_path / "path", says("17.0.1"))
    found = check_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert found == Java(str(chosen), "21.0.1", 21)


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    executable = fake_java(tmp_path, says("17.0.9"))
    assert check_java({"PATH": str(executable.parent)}) == Java(str(executable), "17.0.9", 17)


def test_no_java_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "install_commands", lambda: ["install it so"])
    with pytest.raises(JavaNotReady, match=r"no `java` on PATH\.\nInstall it:\n  install it so$"):
        check_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_said_even_if_the_path_has_one(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", says("17.0.1"))
    wrong = {"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(on_path.parent)}
    with pytest.raises(JavaNotReady, match="there is no bin/java in it") as caught:
        check_java(wrong)
    assert "unset JAVA_HOME" in caught.value.getMessage()


def test_an_old_java_is_named(tmp_path: Path) -> None:
    # Java 8 does not know the option; Java 11 does.
    reject = f"{PROBES_WITH_MODULE} echo 'Unrecognized option' >&2; exit 1;; esac"
    java8 = fake_java(tmp_path / "8", f"{reject}; {says('1.8.0_392')}")
    java11 = fake_java(tmp_path / "11", says("11.0.2"))
    for executable, version in ((java8, "1.8.0_392"), (java11, "11.0.2")):
        with pytest.raises(JavaNotReady, match=f"is Java {version}"):
            check_java({"PATH": str(executable.parent)})


def test_a_reduced_runtime_is_told_apart(tmp_path: Path) -> None:
    reject = f"{PROBES_WITH_MODULE} echo 'FindException' >&2; exit 1;; esac"
    executable = fake_java(tmp_path, f"{reject}; {says('25.0.1')}")
    with pytest.raises(JavaNotReady, match="reduced runtime without the module"):
        check_java({"PATH": str(executable.parent)})


def test_a_java_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    executable = fake_java(tmp_path, "echo 'Unable to locate a Java Runtime' >&2; exit 1")
    with pytest.raises(JavaNotReady, match="does not start: Unable to locate a Java Runtime"):
        check_java({"PATH": str(executable.parent)})


@pytest.mark.parametrize(
    ("os_release", "package"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "openjdk-17-jre-headless"),
        ('ID=debian\nVERSION_ID="13"\n', "openjdk-21-jre-headless"),
        ("ID=debian\nVERSION_CODENAME=sid\n", "openjdk-21-jre-headless"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "openjdk-17-jre-headless"),
        ("", "openjdk-17-jre-headless"),
    ],
)
def test_debian_package_fits_the_release(tmp_path: Path, os_release: str, package: str) -> None:
    file = tmp_path / "os-release"
    file.write_text(os_release)
    assert debian_package(file) == package


def test_debian_package_without_os_release(tmp_path: Path) -> None:
    assert debian_package(tmp_path / "none") == "openjdk-17-jre-headless"


@pytest.mark.parametrize(
    ("platform", "tool", "user", "first"),
    [
        ("darwin", "brew", 501, "brew install openjdk@21"),
        ("linux", "dnf", 1000, "sudo dnf install -y java-21-openjdk-headless"),
        ("linux", "dnf", 0, "dnf install -y java-21-openjdk-headless"),
        ("linux", "apt-get", 1000, "sudo apt-get update && sudo apt-get install -y openjdk-"),
        ("linux", "apt-get", 0, "apt-get update && apt-get install -y openjdk-"),
        ("linux", "none of them", 0, "sudo apt-get update && sudo apt-get install -y openjdk-"),
    ],
)
def test_install_commands_fit_the_machine(
    monkeypatch: pytest.MonkeyPatch, platform: str, tool: str, user: int, first: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == tool else None)
    assert install_commands()[0].startswith(first)


def test_as_a_script_it_reports_by_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    executable = fake_java(tmp_path, says("17.0.9"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.main() == 0
    assert capsys.readouterr().out == f"Java 17.0.9 ({executable})\n"
    executable.unlink()
    assert java.main() == 1
    assert "unset JAVA_HOME" in capsys.readouterr().err
