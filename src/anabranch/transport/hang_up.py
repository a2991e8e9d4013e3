"""Ends the connections of this process to an address, whatever gRPC has in them.

A call that is cancelled while the kernel still has bytes to send for it ends only when these are
acknowledged, or time out: gRPC waits for the write. Nobody acknowledges them where a host is gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat

_OPEN_FILES = "/proc/self/fd"


def hang_up(address: str) -> int:
    """Shut down all connections to an address; how many. Only Linux tells which there are."""
    host, _, port = address.rpartition(":")
    try:
        files = [int(name) for name in os.listdir(_OPEN_FILES)]
    except OSError:
        return 0
    return sum(_shut_down(file, host, int(port)) for file in files)


def _shut_down(file: int, host: str, port: int) -> bool:
    """Shut down a file that is a connection to there.

    It is looked at through a copy: others close files, and numbers are used again.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            return False  # a copy of a pipe's end would keep its reader waiting
        # no limit: nothing is read from it
        with socket.socket(fileno=os.dup(file)) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6):
                peer_host, peer_port = copy.getpeername()[:2]
                if peer_port == port and _is_same(peer_host, host):
                    copy.shutdown(socket.SHUT_RDWR)
                    return True
    return False


def _is_same(peer: str, host: str) -> bool:
    """gRPC's sockets are of IPv6 also where the address is of IPv4."""
    return peer.removeprefix("::ffff:") == host.strip("[]")
