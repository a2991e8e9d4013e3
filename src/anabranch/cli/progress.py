"""A line on the terminal that tells what a benchmark is doing; nothing of it gets into files."""

from __future__ import annotations

import shutil
import sys


def show_progress(text: str) -> None:
    """Overwrite the line."""
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
