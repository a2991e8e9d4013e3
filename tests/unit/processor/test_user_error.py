"""Errors of user code: the error first and once, the user's frames, what to do last."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.processor.user_error import user_failure


def raises() -> None:
    raise ValueError("no way")


def raises_from_another() -> None:
    try:
        raises()
    except ValueError as error:
        raise KeyError("outer") from error


def raises_lines() -> None:
    raise ValueError("one\ntwo")


@pytest.mark.parametrize(
    ("call", "name", "others"),
    [
        (raises, "ValueError: no way", 0),
        (raises_from_another, "KeyError: 'outer'", 1),
        (raises_lines, "ValueError: one\ntwo", 0),
    ],
)
def test_the_message(call: Callable[[], None], name: str, others: int) -> None:
    try:
        call()
    except (ValueError, KeyError) as error:
        message = user_failure("Mine.update failed", error, "Fix it.")
    assert message.startswith(f"Mine.update failed: {name}\n")
    assert message.endswith("\nFix it.")
    assert message.count(name) == 1
    assert f"in {call.__name__}" in message
    assert "test_the_message" not in message
    assert message.count("ValueError: no way") == (1 if call is raises else others)
