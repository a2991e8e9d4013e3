"""The frame of the `anabranch` command: help, errors, exit codes."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint, version
from types import ModuleType

import pytest

from anabranch.cli import main as cli
from anabranch.errors import InvalidArgument

FAKE = "anabranch.cli.fake"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A subcommand `fake` whose `run` each test sets."""
    module = ModuleType(FAKE)

    def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        subparsers.add_parser("fake").set_defaults(run=lambda args: module.run(args))

    module.register = register  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, FAKE, module)
    monkeypatch.setattr(cli, "COMMANDS", {"fake": "does nothing"})
    monkeypatch.setattr(cli, "find_spec", lambda name: object() if name == FAKE else None)
    return module


def fails_with(error: BaseException) -> object:
    def run(_: argparse.Namespace) -> int:
        raise error

    return run


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert "PySpark Structured Streaming" in text
    assert re.search(rf"^ *doctor +{re.escape(cli.COMMANDS['doctor'])}$", text, re.MULTILINE)
    assert "examples:" in text


def test_without_a_command_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "examples:" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"anabranch {version('anabranch')}\n"


def test_an_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["doctr"])
    assert "doctor" in capsys.readouterr().err


@pytest.mark.usefixtures("command")
def test_a_command_without_a_module_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"fake": "does nothing", "later": "not there"})
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert "does nothing" in text
    assert "later" not in text


def test_the_exit_code_is_the_commands(command: ModuleType) -> None:
    command.run = lambda args: 7  # type: ignore[attr-defined]
    assert cli.main(["fake"]) == 7


def test_an_anabranch_error_is_one_message(
    command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.run = fails_with(InvalidArgument("No such thing. Do that."))  # type: ignore[attr-defined]
    assert cli.main(["fake"]) == 2
    output = capsys.readouterr()
    assert output.err == "anabranch: [INVALID_ARGUMENT] No such thing. Do that.\n"
    assert output.out == ""


def test_interrupt_is_one_line(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    command.run = fails_with(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert cli.main(["fake"]) == 130
    assert capsys.readouterr() == ("", "anabranch: ended by Ctrl-C.\n")


@pytest.mark.parametrize("times", [1, 2])
def test_sigterm_ends_a_command_like_an_interrupt(
    command: ModuleType, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`timeout` sends it twice at once, which must not keep the command from cleaning up."""
    left = []

    def run(args: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            for _ in range(times - 1):
                os.kill(os.getpid(), signal.SIGTERM)
            left.append("cleaned up")
        return 0

    before = signal.getsignal(signal.SIGTERM)
    command.run = run  # type: ignore[attr-defined]
    assert cli.main(["fake"]) == 143
    assert capsys.readouterr() == ("", "anabranch: ended by SIGTERM.\n")
    assert left == ["cleaned up"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["bench", "run"])
def test_without_anabranch_bench_its_commands_say_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("anabranch.cli.main.entry_points", lambda group: [])
    assert cli.main([name, "--whatever"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert f"`anabranch {name}` is in the distribution anabranch-bench" in output.err
    assert "pip install anabranch-bench" in output.err


def test_entry_points_add_commands(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def entry_points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("fake", FAKE, group)]

    monkeypatch.setattr("anabranch.cli.main.entry_points", entry_points)
    monkeypatch.setattr(cli, "COMMANDS", {})
    command.run = lambda args: 7  # type: ignore[attr-defined]
    assert cli.main(["fake"]) == 7
    assert set(asked) == {"anabranch.commands"}
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert "fake" in capsys.readouterr().out


def test_a_bug_keeps_its_traceback(command: ModuleType) -> None:
    command.run = fails_with(ZeroDivisionError())  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        cli.main(["fake"])


def test_help_does_not_wait_for_heavy_imports() -> None:
    script = """
import sys, anabranch
before = set(sys.modules)
from anabranch.cli.main import build_parser
build_parser(None).format_help()
added = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(added & {"pyspark", "pyarrow", "pandas", "numpy"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["recovery", "--state-gb", "-1"], "above 0"),
        (["checkpoints", "--repeat", "0"], "at least 1"),
        (["hybrid", "--limit-share", "0"], "above 0"),
        (["backends", "--workers", "0"], "at least 1"),
    ],
)
def test_benchmarks_refuse_sizes_that_cannot_be(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", *words])
    assert error in capsys.readouterr().err


def test_the_demo_needs_a_place_for_its_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--plot", "/no/such/folder/x.png"]) == 2
    assert "--plot: there is no folder /no/such/folder. Create it first." in capsys.readouterr().err
