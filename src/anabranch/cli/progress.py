"""What a terminal shows of work that goes on."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any


def bar(progress: float, width: int) -> str:
    """How much is done, from 0 to 1."""
    done = round(width * progress)
    return f"[{'#' * done}{'.' * (width - done)}] {progress:4.0%}"


def show_progress(text: str) -> None:
    """Overwrite the line; nothing of it gets into files."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()


def log_task(text: str) -> None:
    """Where lines cannot be overwritten, one for each piece of work."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Make room for something that stays."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def print_result(text: object, as_json: Any = None) -> None:
    """A result that stays: as JSON if there is any, else as text."""
    clear_progress()
    print(text if as_json is None else json.dumps(as_json), flush=True)
