"""Kinds of command line arguments that argparse does not have."""

from __future__ import annotations

import argparse
import math
import re
import time
from datetime import datetime
from pathlib import Path

from anabranch.errors import InvalidArgument

UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0}
"""Of times, in seconds."""
AGO = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Of times that have passed."""


def positive(text: str) -> float:
    """A number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return number


def count(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


def check_folders(args: argparse.Namespace, *options: str) -> None:
    """Files that are written at the end need a place: tell before the work, not after it."""
    for option in options:
        path = getattr(args, option)
        if path and not (parent := Path(path).absolute().parent).is_dir():
            raise InvalidArgument(f"--{option}: there is no folder {parent}. Create it first.")


def seconds(text: str) -> float:
    """A time: `30`, `30s`, `1.5s`, `500ms` or `2m`."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(ms|s|m|)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time; write 30s, 500ms or 2m")
    return float(found[1]) * UNITS[found[2]]


def moment(text: str) -> float:
    """A moment as Unix time: `90s`, `15m`, `2h` or `3d` ago, or a date and time in ISO form."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([smhd])", text)
    if found:
        return time.time() - float(found[1]) * AGO[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        message = f"'{text}' is not a moment; write 2h (ago), or 2026-05-01T03:00 (local time)"
        raise argparse.ArgumentTypeError(message) from None
