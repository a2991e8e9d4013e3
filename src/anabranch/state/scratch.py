"""A folder that is gone when its process is, whatever ended it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from anabranch.errors import LocationNotWritable
from anabranch.state.access import PRIVATE, make_folders

_PREFIX = "anabranch-scratch-"
_OWNER = "owner"
_YOUNG_SECONDS = 60.0
"""A folder this new may be about to get its owner."""

# It reads to the end of a pipe that only the owner of the folder can write to: its end, by
# whatever signal, is the end of the pipe. A session of its own: Ctrl-C is not for it. What the
# owner has started ends a little later and may write until then, so all is removed again.
_JANITOR = """
cat > /dev/null
[ -e "$0" ] || exit
for _ in 1 2 3 4 5; do rm -rf -- "$0"; sleep 1; done
"""


class Scratch:
    """Made when needed, removed by `close`, by a janitor process, or by the next one beside it."""

    def __init__(self, parent: str | None = None) -> None:
        base = Path(parent or tempfile.gettempdir()).absolute()
        try:
            make_folders(str(base), PRIVATE)
            sweep(base)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            self._owner = os.open(self.path / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise LocationNotWritable(
                f"Files cannot be kept in {base}: {error}. Make room there, or choose a folder on "
                "another local disk: local_dir=... for state, TMPDIR for commands."
            ) from error
        # no limit: nobody else looks into a folder this young
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        self._janitor = subprocess.Popen(
            ["/bin/sh", "-c", _JANITOR, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        # no limit: it ends with its input, and has nothing left to remove
        self._janitor.wait()
        os.close(self._owner)


def sweep(base: Path) -> None:
    """Remove folders whose owner and janitor died together: a reset of the machine, say."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _YOUNG_SECONDS and not _is_owned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_owned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _OWNER, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
