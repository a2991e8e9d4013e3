"""Small file systems that can be filled, and folders that nobody may write into, not even root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """To the last byte."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 10, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """There is space again."""
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "4m") -> Iterator[Disk]:
    """Mounted there; skips the test where this process may not mount."""
    folder.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "anabranch-tests", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here (root is needed): {error}")
    try:
        yield Disk(folder)
    finally:
        _run("umount", "-l", str(folder))


@contextlib.contextmanager
def forbidden(folder: Path) -> Iterator[None]:
    """Nothing can be made, changed or removed there meanwhile; skips the test if this cannot be."""
    if os.getuid():
        forbid, allow = ("chmod", "-R", "a-w"), ("chmod", "-R", "u+w")
    else:  # root may do everything, except change what is immutable
        forbid, allow = ("chattr", "-R", "+i"), ("chattr", "-R", "-i")
    try:
        _run(*forbid, str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"permissions cannot be taken from this process here: {error}")
    try:
        yield
    finally:
        _run(*allow, str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
