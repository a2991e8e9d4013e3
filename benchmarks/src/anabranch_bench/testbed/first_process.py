"""The first process of a namespaced host. All that runs on the host ends with it.

It ends with its standard input, so with whoever made the host: nothing is left behind, also after
kill -9. It needs the standard library only, to start in milliseconds.

usage: first_process.py NAME DISK DISK_BYTES HOSTS RESOLVER
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys


def main() -> None:
    """Set the host up, then wait."""
    name, disk, disk_bytes, hosts, resolver = sys.argv[1:]
    socket.sethostname(name)
    _run("ip", "link", "set", "lo", "up")
    _run("mount", "-t", "tmpfs", "-o", f"size={disk_bytes},mode=0777", "tmpfs", disk)
    _run("mount", "--bind", hosts, "/etc/hosts")
    _run("mount", "--bind", resolver, os.path.realpath("/etc/resolv.conf"))
    # Orphans of the host become children of its first process, which has to collect them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, b"ok\n")
    while os.read(0, 4096):
        pass


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
