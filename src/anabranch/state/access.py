"""Who may read what we make on a local file system: this user alone, or whom the umask lets."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

OTHERS = 0o077
"""What a mode gives to anybody else."""


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Modes of what is made; the umask can only take away from them."""

    folder: int
    file: int

    def fits(self, mode: int) -> bool:
        """Whether a file that is there is as open, or as closed, as one made here."""
        return bool(mode & OTHERS) == bool(self.file & OTHERS)


PRIVATE = FileAccess(0o700, 0o600)
SHARED = FileAccess(0o777, 0o666)


def make_folders(folder: str, access: FileAccess) -> list[str]:
    """Make a folder and those above it that are missing; those that were made, outermost first.

    A folder that is there keeps its mode: whoever made it has chosen it.
    """
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    missing.reverse()
    for name in missing:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, access.folder)
    return missing


def access_warning(location: str, inner: str, shared: bool) -> str | None:
    """What to say of a folder that was there before, and is not as open as it was asked to be.

    `inner` is a folder in it that we have made: with it closed, nobody sees state.
    """
    modes = [mode for folder in (location, inner) if (mode := _mode(folder)) is not None]
    if shared and any(not mode & OTHERS for mode in modes):
        return (
            f"shared=True is for new files; other users cannot enter {location}. To let its group "
            f"read what is there: chmod -R g+rX {location}"
        )
    if not shared and len(modes) == 2 and all(mode & OTHERS for mode in modes):
        return (
            f"Other users of this machine can read older files in {location}; new ones are "
            f"private. To close all of them: chmod -R go-rwx {location} (or say shared=True)"
        )
    return None


def _mode(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mode
    except OSError:
        return None
