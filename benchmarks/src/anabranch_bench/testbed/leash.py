"""Runs a program that ends with whoever holds the other end of a pipe, also after kill -9.

usage: leash.py FD WORDS...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Until the program or the pipe ends."""
    child = subprocess.Popen(sys.argv[2:], start_new_session=True)
    threading.Thread(target=_watch, args=(int(sys.argv[1]), child.pid), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(child.wait() & 0xFF)


def _watch(pipe: int, group: int) -> None:
    while os.read(pipe, 4096):
        pass
    os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
