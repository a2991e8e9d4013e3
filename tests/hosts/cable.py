"""A cable to a TCP server that can be cut: bytes stay where they are, and no connection breaks."""

from __future__ import annotations

import contextlib
import socket
import threading

CHUNK = 1 << 16


class Cable:
    """Listens on a port of its own and passes everything on."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to = host, int(port)
        self._is_whole = threading.Event()
        self._is_whole.set()
        self._is_over = False
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, name="test-cable", daemon=True).start()

    def cut(self) -> None:
        """Nothing comes through, and nobody notices."""
        self._is_whole.clear()

    def heal(self) -> None:
        """What is on its way arrives."""
        self._is_whole.set()

    def close(self) -> None:
        """All connections break."""
        self._is_over = True
        self.heal()
        for end in [self._door, *self._ends]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._to)
            except OSError:
                near.close()
                continue
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pass, args=(source, target), name="test-cable", daemon=True
                ).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._is_whole.wait()
                target.sendall(data)
        self._is_whole.wait()
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
