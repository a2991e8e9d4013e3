"""`anabranch doctor`: findings, exit code, JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from anabranch.cli import doctor
from anabranch.cli.extras import EXTRAS, Extra
from anabranch.cli.java import Java, JavaNotReady
from anabranch.cli.main import main


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_java", lambda: Java("/opt/java", "17.0.9", 17))


def no_java() -> Java:
    raise JavaNotReady("Spark needs Java.\nInstall it:\n  so")


def test_a_good_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "All is well." in text
    assert "17.0.9 (/opt/java)" in text
    assert "NO" not in text


def test_json_has_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    wanted = ["python", "pyspark", "pyarrow", "pandas", "numpy", "tasks", "java"]
    wanted += ["cores", "memory"]
    extras = ["[rocksdb]", "[tls]", "[plot]", "[ui]", "[bench]"]
    assert list(report["findings"]) == wanted + extras


def test_what_is_wrong_is_said_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "check_java", no_java)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "NO  java        not ready" in text
    assert "Install it:\n        so" in text
    assert "Something must be fixed" in text
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"]["java"]["ok"] is False


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (None, "--  tasks       PYSPARK_PYTHON is not set"),
        (sys.executable, f"ok  tasks       {sys.executable}"),
        ("/nowhere/python", "NO  tasks       PYSPARK_PYTHON=/nowhere/python cannot be run"),
    ],
)
def test_the_python_of_tasks(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    python: str | None,
    said: str,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    if python is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", python)
    assert main(["doctor"]) == (1 if said.startswith("NO") else 0)
    text = capsys.readouterr().out
    assert said in text
    assert (f"PYSPARK_PYTHON={sys.executable}" in text) == said.startswith("NO")
    assert ("spark.pyspark.python goes first, and doctor does not see it" in text) == (
        not said.startswith("NO")
    )


def test_a_library_that_is_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("pandas",))
    monkeypatch.setattr("pandas.__version__", "3.0.1")
    finding = next(finding for finding in doctor.examine() if finding.name == "pandas")
    assert not finding.ok
    assert "-m pip install" in finding.advice
    missing = doctor._library("surely_not_installed", ">=1")
    assert not missing.ok
    assert "cannot be imported" in missing.value


def test_an_extra_that_is_not_installed_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXTRAS, "rocksdb", Extra(("no_such_package.part",), "large state"))
    monkeypatch.setitem(EXTRAS, "plot", Extra(("json",), "pictures"))
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "--  [rocksdb]   not installed" in text
    assert "pip install '.[rocksdb]' in a clone, for: large state" in text
    assert "ok  [plot]      installed" in text


def test_extras_are_those_of_the_project() -> None:
    settings = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    section = settings.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    wanted = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    mine = {name for name, extra in EXTRAS.items() if not extra.install}
    assert mine == wanted - {"dev", "docs"}  # for those who work on the project


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("4.1.0", "<5,>=4.1", True),
        ("4.0.9", "<5,>=4.1", False),
        ("5.0.0", "<5,>=4.1", False),
        ("4.3.0.dev1", "<5,>=4.1", True),
        ("3.10.0", "<3.14,>=3.10", True),
        ("3.14.0", "<3.14,>=3.10", False),
        ("26.0.1", ">=18", True),
        ("2.2", ">=2.2,<3", True),
    ],
)
def test_version_ranges(version: str, wanted: str, expected: bool) -> None:
    assert doctor.in_range(version, wanted) is expected


def test_memory_heeds_the_container_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, unlimited = tmp_path / "limit", tmp_path / "unlimited"
    limit.write_text(f"{2**30}\n")
    unlimited.write_text("max\n")
    monkeypatch.setattr(doctor, "CGROUP_LIMITS", (str(unlimited), str(limit), "/none"))
    finding = doctor._memory()
    assert finding.value == "1.0 GiB"
    assert not finding.ok
